"""What kernels are made of: one step over one run of values, each stated in plain NumPy.

These functions are what runs where Numba is switched off (``NUMBA_DISABLE_JIT=1``), so that the
tests of the kernels can be stepped through. Compiled, each is the loop of the same name in
``simd_encode.py`` or ``simd_decode.py``.

A run is ``x[start:start + count]``. Beside it stand float32 scales ``e`` and zero points ``z``:
where ``each``, those from ``first`` on, one per value; otherwise the one at ``first``.
"""

from __future__ import annotations

import numpy as np

from qnumba.cpu import simd_decode, simd_encode
from qnumba.cpu.jit import compiled_as, inner

PACKED_LANES = simd_decode.PACKED_LANES
TABLE_LANES = 16


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
def _decode_any_table(codes, start, count, e, first, each, table, out, to):
    """Look up small tables in registers, large ones in memory."""
    if table.size == TABLE_LANES:
        simd_decode.decode_table(codes, start, count, e, first, each, table, out, to)
    else:
        real = out.dtype.type
        for k in range(count):
            scale = real(e[first + k if each else first])
            out[to + k] = real(table[codes[start + k]]) * scale


@compiled_as(simd_encode.absmax)
def absmax(x, start, count):
    """Return the largest magnitude; infinity, or else NaN, where there is one."""
    sizes = np.abs(x[start : start + count])
    return sizes[np.isnan(sizes).argmax()] if np.isnan(sizes).any() else sizes.max(initial=0)


@compiled_as(simd_encode.extremes)
def extremes(x, start, count):
    """Return the least and the greatest of the values and 0. NaN is passed over."""
    values = x[start : start + count]
    values = values[~np.isnan(values)]
    return values.min(initial=0), values.max(initial=0)


@compiled_as(simd_encode.encode_int)
def encode_int(x, start, count, e, z, first, each, lo, hi, away, out, to):
    """Encode integers: clamp to whole ends, round, then add the zero point. NaN: the zero point."""
    ratio = _ratio(x, start, count, e, first, each)
    point = _beside(z, first, count, each).astype(x.dtype)
    steps = np.clip(ratio, lo - point, hi - point)
    if away:
        whole = np.trunc(steps)
        steps = whole + np.copysign(np.abs(steps - whole) >= 0.5, steps)  # noqa: PLR2004 - half
    steps = np.where(np.isnan(ratio), 0, np.rint(steps)) + point
    out[to : to + count] = steps.astype(np.int32).astype(np.uint8)


@compiled_as(simd_encode.encode_float)
def encode_float(x, start, count, e, first, each, mantissa, smallest, top, width, out, to):
    """Encode minifloats, ties to even, saturating at ``top``; ``smallest``: the least normal."""
    ratio = _ratio(x, start, count, e, first, each).astype(np.float64)
    size = np.minimum(np.abs(ratio), top)
    power = np.frexp(np.maximum(size, smallest))[1] - np.frexp(smallest)[1]
    steps = np.rint(np.ldexp(size / smallest, mantissa - power))
    codes = power * 2**mantissa + steps
    codes = np.where(np.isnan(codes), 0, codes).astype(np.uint8)
    out[to : to + count] = codes | np.signbit(ratio) * np.uint8(2 ** (width - 1))


@compiled_as(simd_encode.encode_lookup)
def encode_lookup(x, start, count, e, first, each, edges, steps, out, to):
    """Encode indices: how many of the ``steps`` edges a ratio is above. NaN: 0."""
    ratio = _ratio(x, start, count, e, first, each)
    out[to : to + count] = np.where(np.isnan(ratio), 0, np.searchsorted(edges[:steps], ratio))


@compiled_as(simd_decode.decode_int)
def decode_int(codes, start, count, e, z, first, each, mask, sign, out, to):
    """Decode integers; ``sign`` is the sign bit of the field, 0 where it has none."""
    steps = (codes[start : start + count].astype(np.int32) & mask ^ sign) - sign
    steps = (steps - _beside(z, first, count, each)).astype(out.dtype)
    out[to : to + count] = _product(steps, e, first, count, each)


@compiled_as(simd_decode.decode_float)
def decode_float(codes, start, count, e, first, each, shift, factor, width, out, to):
    """Decode minifloats: the bits of a half float ``shift`` places up, times a power of two."""
    fields = codes[start : start + count].astype(np.uint16)
    size = fields & 2 ** (width - 1) - 1
    half = (fields << (16 - width) & 0x8000 | size << shift).astype(np.uint16)
    numbers = half.view(np.float16).astype(out.dtype) * out.dtype.type(factor)
    numbers[size == simd_decode.NAN_CODE] = np.nan
    out[to : to + count] = _product(numbers, e, first, count, each)


@compiled_as(_decode_any_table)
def decode_table(codes, start, count, e, first, each, table, out, to):
    """Decode indices; ``table`` has a power of two of entries, at least 16."""
    fields = codes[start : start + count] & (table.size - 1)
    out[to : to + count] = _product(table[fields].astype(out.dtype), e, first, count, each)


@compiled_as(simd_decode.widen)
def widen(x, start, count, brain, out):
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


@compiled_as(simd_decode.prefetch)
def prefetch(_x, _start, _count):
    """Ask for the cache lines of a run to be loaded: nothing to do here."""


@compiled_as(simd_decode.to_bits)
def to_bits(value):
    """Return the bits of a float64."""
    return np.float64(value).view(np.uint64)


@compiled_as(simd_decode.from_bits)
def from_bits(bits):
    """Return the float64 of 64 bits."""
    return np.uint64(bits).view(np.float64)


def _beside(numbers, first, count, each):
    return numbers[first : first + (count if each else 1)]


def _ratio(x, start, count, e, first, each):
    with np.errstate(all="ignore"):
        return x[start : start + count] / _beside(e, first, count, each).astype(x.dtype)


def _product(numbers, e, first, count, each):
    with np.errstate(all="ignore"):
        return numbers * _beside(e, first, count, each).astype(numbers.dtype)
