"""What kernels are made of: one step over runs of values, each stated in plain NumPy.

These functions are what runs where Numba is switched off (``NUMBA_DISABLE_JIT=1``), so that the
tests of the kernels can be stepped through. Compiled, each is the loop of the same name in
``simd_ranges.py``, ``simd_encode.py`` or ``simd_decode.py``, or one of the three above that call
them for whole vectors.

``runs`` runs of ``length`` values follow each other from ``x[start]`` on. Beside them stand float32
scales ``e``, their inverses ``y`` and zero points ``z`` from ``first`` on: one for every value
where ``each``, otherwise one for every run. Over a scale of 0 a value is 0, with its sign. An
encoder returns whether all ratios are finite; the codes of those that are not mean nothing.
``ahead`` is how far in front values are asked for, so that they are there in time.
"""

from __future__ import annotations

import numpy as np

from qnumba.cpu import simd_decode, simd_encode, simd_ranges
from qnumba.cpu.jit import compiled_as, inner

PACKED_LANES = simd_decode.PACKED_LANES
TABLE_LANES = simd_encode.FEW_EDGES + 1


@inner
def _pack_any(codes, start, count, width, words, to):
    """Pack whole vectors, then byte by byte."""
    group = 8 // width
    if group == 1:
        for k in range(count):
            words[to + k] = codes[start + k]
        return
    done = count - count % PACKED_LANES
    simd_decode.pack(codes, start, done, width, words, to)
    for k in range(done, count, group):
        byte = 0
        for j in range(min(group, count - k)):
            byte |= (codes[start + k + j] & (2**width - 1)) << (j * width)
        words[to + k // group] = byte


@inner
def _unpack_any(words, start, count, width, codes, to):
    """Unpack whole vectors, then code by code."""
    group = 8 // width
    if group == 1:
        for k in range(count):
            codes[to + k] = words[start + k]
        return
    done = count - count % PACKED_LANES
    simd_decode.unpack(words, start, done, width, codes, to)
    for k in range(done, count):
        codes[to + k] = (words[start + k // group] >> (k % group * width)) & (2**width - 1)


@inner
def _decode_any_table(codes, start, runs, length, e, first, each, table, out, to):
    """Look up small tables in registers, large ones in memory."""
    if table.size == TABLE_LANES:
        simd_decode.decode_table(codes, start, runs, length, e, first, each, table, out, to)
        return
    real = out.dtype.type
    for run in range(runs):
        place = run * length
        for k in range(place, place + length):
            scale = real(e[first + k if each else first + run])
            out[to + k] = real(table[codes[start + k]]) * scale


@compiled_as(simd_ranges.absmax)
def absmax(x, start, count):
    """Return the largest magnitude; NaN, or else infinity, where there is one."""
    sizes = np.abs(x[start : start + count])
    return sizes[np.isnan(sizes).argmax()] if np.isnan(sizes).any() else sizes.max(initial=0)


@compiled_as(simd_ranges.absmax_runs)
def absmax_runs(x, start, runs, length, ahead, high, first):
    """Widen high[first:first + runs] by the magnitudes of each run; return their largest."""
    tops = [absmax(x, start + run * length, length) for run in range(runs)]
    high[first : first + runs] = np.maximum(high[first : first + runs], tops)
    return absmax(np.array(tops), 0, runs)


@compiled_as(simd_ranges.absmax_each)
def absmax_each(x, start, count, high, first):
    """Widen high[first:first + count] by the magnitude beside each; return the largest."""
    return absmax_runs(x, start, count, 1, 0, high, first)


@compiled_as(simd_ranges.extremes)
def extremes(x, start, count):
    """Return the least and the greatest of the values and 0. NaN is passed over."""
    values = x[start : start + count]
    values = values[~np.isnan(values)]
    return values.min(initial=0), values.max(initial=0)


@compiled_as(simd_ranges.scales_of)
def scales_of(high, first, count, half, share, most, least, smallest, mantissa, is_up, scales):
    """Write scales: ``high / half / share`` to ``mantissa`` bits, subnormal below ``smallest``."""
    real = high.dtype.type
    size = np.minimum(high[first : first + count] / real(half), np.finfo(np.float32).max)
    size = np.minimum(size / real(share), most).astype(np.float64)
    power = np.frexp(np.maximum(size, smallest))[1] - 1 - mantissa
    steps = np.ldexp(size, -power)
    if mantissa == 0 and not is_up:  # a power of two is even if its exponent is
        steps = np.where((steps == 1.5) & (power % 2 == 1), 1, steps)  # noqa: PLR2004 - halfway
    steps = np.ceil(steps) if is_up else np.rint(steps)
    scales[first : first + count] = np.clip(np.ldexp(steps, power), least, most)


@compiled_as(simd_encode.encode_int)
def encode_int(x, start, runs, length, e, y, z, first, each, ahead, lo, hi, away, out, to):
    """Encode integers: clamp to whole ends, round, then add the zero point."""
    ratio = _ratio(x, start, runs, length, e, first, each)
    point = x.dtype.type(0) if z is None else _beside(z, first, runs, length, each).astype(x.dtype)
    steps = np.clip(ratio, lo - point, hi - point)
    if away:
        whole = np.trunc(steps)
        steps = whole + np.copysign(np.abs(steps - whole) >= 0.5, steps)  # noqa: PLR2004 - half
    steps = np.where(np.isnan(ratio), 0, np.rint(steps)) + point
    out[to : to + steps.size] = steps.astype(np.int32).astype(np.uint8)
    return np.isfinite(ratio).all()


@compiled_as(simd_encode.encode_float)
def encode_float(
    x, start, runs, length, e, y, first, each, ahead, mantissa, smallest, top, width, out, to
):
    """Encode minifloats, ties to even, saturating at ``top``; ``smallest``: the least normal."""
    ratio = _ratio(x, start, runs, length, e, first, each).astype(np.float64)
    size = np.minimum(np.abs(ratio), top)
    power = np.frexp(np.maximum(size, smallest))[1] - np.frexp(smallest)[1]
    steps = np.rint(np.ldexp(size / smallest, mantissa - power))
    codes = power * 2**mantissa + steps
    codes = np.where(np.isnan(codes), 0, codes).astype(np.uint8)
    signs = np.signbit(x[start : start + codes.size]) * np.uint8(2 ** (width - 1))
    out[to : to + codes.size] = codes | signs
    return np.isfinite(ratio).all()


@compiled_as(simd_encode.encode_lookup)
def encode_lookup(x, start, runs, length, e, y, first, each, ahead, edges, out, to):
    """Encode indices: how many edges a ratio is above. NaN: 0."""
    ratio = _ratio(x, start, runs, length, e, first, each)
    out[to : to + ratio.size] = np.where(np.isnan(ratio), 0, np.searchsorted(edges, ratio))
    return np.isfinite(ratio).all()


@compiled_as(simd_encode.inverses)
def inverses(e, count, y):
    """Write 1 / e[:count] to y, 0 for 0; return the largest of e and of y."""
    scales = e[:count]
    with np.errstate(divide="ignore", over="ignore"):
        y[:count] = np.where(scales == 0, 0, np.float32(1) / scales)
    return np.nanmax(scales, initial=0), np.nanmax(y[:count], initial=0)


@compiled_as(simd_encode.divide)
def divide(x, start, runs, length, e, first, each, out):
    """Write x / e to out; ratios beyond float32 end at its largest."""
    ratio = _ratio(x, start, runs, length, e, first, each)
    finite = np.finfo(np.float32).max
    out[: ratio.size] = np.clip(ratio, -finite, finite)


@compiled_as(simd_decode.decode_int)
def decode_int(codes, start, runs, length, e, z, first, each, mask, sign, out, to):
    """Decode integers; ``sign`` is the sign bit of the field, 0 where it has none."""
    steps = (codes[start : start + runs * length].astype(np.int32) & mask ^ sign) - sign
    point = 0 if z is None else _beside(z, first, runs, length, each)
    steps = (steps - point).astype(out.dtype)
    out[to : to + steps.size] = _product(steps, e, first, runs, length, each)


@compiled_as(simd_decode.decode_float)
def decode_float(codes, start, runs, length, e, first, each, shift, factor, width, out, to):
    """Decode minifloats: the bits of a half float ``shift`` places up, times a power of two."""
    fields = codes[start : start + runs * length].astype(np.uint16)
    size = fields & 2 ** (width - 1) - 1
    half = (fields << (16 - width) & 0x8000 | size << shift).astype(np.uint16)
    numbers = half.view(np.float16).astype(out.dtype) * out.dtype.type(factor)
    numbers[size == simd_decode.NAN_CODE] = np.nan
    out[to : to + numbers.size] = _product(numbers, e, first, runs, length, each)


@compiled_as(_decode_any_table)
def decode_table(codes, start, runs, length, e, first, each, table, out, to):
    """Decode indices; ``table`` has a power of two of entries, at least 16."""
    fields = codes[start : start + runs * length] & (table.size - 1)
    numbers = table[fields].astype(out.dtype)
    out[to : to + fields.size] = _product(numbers, e, first, runs, length, each)


@compiled_as(simd_decode.effective)
def effective(scales, first, count, share, dead, e, to):
    """Write share * scales[first:first + count] to e[to:], ``dead`` for a scale of 0."""
    scale = share * scales[first : first + count]
    e[to : to + count] = np.where(scale == 0, dead, scale)


@compiled_as(simd_decode.widen)
def widen(x, start, count, ahead, brain, out):
    """Write the bits of float16 or bfloat16 (``brain``) numbers to out as float32."""
    bits = x[start : start + count]
    wide = (bits.astype(np.uint32) << 16).view(np.float32) if brain else bits.view(np.float16)
    out[:count] = wide


@compiled_as(simd_decode.narrow)
def narrow(x, count, brain, out, to):
    """Write x[:count] to out[to:] as the bits of 16-bit floats, rounded to nearest even."""
    if not brain:
        with np.errstate(over="ignore"):
            out[to : to + count] = x[:count].astype(np.float16).view(np.uint16)
        return
    bits = x[:count].view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    out[to : to + count] = np.where(np.isnan(x[:count]), bits >> 16 | 0x40, rounded)


@compiled_as(_pack_any)
def pack(codes, start, count, width, words, to):
    """Pack codes into words[to:], the first in the lowest bits, the last byte padded with zeros."""
    group = 8 // width
    fields = np.zeros((-(-count // group), group), np.uint8)
    fields.reshape(-1)[:count] = codes[start : start + count] & (2**width - 1)
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    words[to : to + len(fields)] = np.bitwise_or.reduce(fields << shifts, axis=1)


@compiled_as(_unpack_any)
def unpack(words, start, count, width, codes, to):
    """Unpack fields of ``width`` bits from words[start:]; they are not sign-extended."""
    group = 8 // width
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    fields = words[start : start + -(-count // group), None] >> shifts & (2**width - 1)
    codes[to : to + count] = fields.reshape(-1)[:count]


@compiled_as(simd_decode.to_bits)
def to_bits(value):
    """Return the bits of a float64."""
    return np.float64(value).view(np.uint64)


@compiled_as(simd_decode.from_bits)
def from_bits(bits):
    """Return the float64 of 64 bits."""
    return np.uint64(bits).view(np.float64)


def _beside(numbers, first, runs, length, each):
    if each:
        return numbers[first : first + runs * length]
    return np.repeat(numbers[first : first + runs], length)


def _ratio(x, start, runs, length, e, first, each):
    with np.errstate(all="ignore"):
        scale = _beside(e, first, runs, length, each).astype(x.dtype)
        return x[start : start + scale.size] / np.where(scale == 0, np.inf, scale)


def _product(numbers, e, first, runs, length, each):
    with np.errstate(all="ignore"):
        return numbers * _beside(e, first, runs, length, each).astype(numbers.dtype)
