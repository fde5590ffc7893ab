"""The numeric contract by a second route: whole grids of numbers, and plain loops over blocks.

Formats come from ml_dtypes and NumPy as lists of every number they hold; nearest and next-above
are searches in those lists. Nothing here is taken from the package under test.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

INTEGER_RANGES = {
    "Q8F": (-128, 127),
    "Q4F": (-8, 7),
    "Q2F": (-2, 1),
    "Q8S": (-127, 127),
    "Q4S": (-7, 7),
    "Q2S": (-1, 1),
    "U8": (0, 255),
    "U4": (0, 15),
    "U2": (0, 3),
}
MINIFLOATS = {
    "E4M3": ml_dtypes.float8_e4m3fn,
    "E5M2": ml_dtypes.float8_e5m2,
    "E2M1": ml_dtypes.float4_e2m1fn,
}
MAXIMA = {"E4M3": 448.0, "E5M2": 57344.0, "E2M1": 6.0}
EMAX = {"E4M3": 8, "E5M2": 15, "E2M1": 2}
MANTISSA_BITS = {"E4M3": 3, "E5M2": 2, "E2M1": 1}
SIGN = {"E4M3": 0x80, "E5M2": 0x80, "E2M1": 0x8}
SCALE_MAXIMA = {"F16": 65504.0, "UE4M3": 448.0}
FLOAT32_MAX = float(np.finfo(np.float32).max)
BITS = {name: int(name[1]) for name in INTEGER_RANGES} | {"E4M3": 8, "E5M2": 8, "E2M1": 4}


@cache
def minifloat_numbers(value: str) -> np.ndarray:
    """Return the number of every code of a minifloat, NaN and infinity included, as float64."""
    patterns = np.arange(2 * SIGN[value], dtype=np.uint8)
    return patterns.view(MINIFLOATS[value]).astype(np.float64)


@cache
def scale_numbers(dtype: str) -> np.ndarray:
    """Return every number a scale dtype holds, ascending, as float64 (not for F32)."""
    if dtype == "F16":
        return np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    if dtype == "BF16":
        return np.arange(0x7F80, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float64)
    if dtype == "UE4M3":
        return minifloat_numbers("E4M3")[:0x7F]
    return np.ldexp(1.0, np.arange(-127, 128))


def compute_type(dtype: Any) -> type:
    """Return the type arithmetic on an input dtype is done in."""
    return np.float64 if np.dtype(dtype) == np.float64 else np.float32


def nearest_even(ascending: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return indices of the nearest entries, ties to the even index, saturating."""
    middles = (ascending[:-1] + ascending[1:]) / 2  # exact in float64 for every format here
    below = np.searchsorted(middles, numbers, side="left")
    tie = np.isin(numbers, middles)
    return below + (tie & (below % 2 == 1))


def encode_minifloat(t: np.ndarray, value: str) -> np.ndarray:
    """Return the codes of finite numbers or infinities (which saturate)."""
    finite = minifloat_numbers(value)[: SIGN[value]]
    finite = finite[np.isfinite(finite)]
    magnitude = np.minimum(np.abs(t.astype(np.float64)), finite[-1] * 4)
    codes = nearest_even(finite, magnitude)
    return np.where(np.signbit(t), codes + SIGN[value], codes).astype(np.uint8)


def round_integers(t: np.ndarray, rounding: str) -> np.ndarray:
    """Round to whole numbers: ties to even, or away from zero."""
    if rounding == "even":
        return np.rint(t)
    t = np.clip(t, -1e6, 1e6)  # beyond every code, and keeps infinity out of the subtraction
    whole = np.trunc(t)  # t - whole is exact
    return whole + np.where(np.abs(t - whole) >= 0.5, np.sign(t), 0).astype(t.dtype)


def store_scale(raw: Any, dtype: str, rounding: str) -> np.float32:
    """Store one raw scale, upwards or to the nearest."""
    number = float(raw)
    if dtype == "F32":
        with np.errstate(over="ignore"):
            stored = np.float32(min(number, FLOAT32_MAX))
        if rounding == "up" and float(stored) < number and float(stored) < FLOAT32_MAX:
            stored = np.nextafter(stored, np.float32(np.inf))
        return stored
    grid = scale_numbers(dtype)
    if rounding == "up":
        index = min(int(np.searchsorted(grid, number, side="left")), grid.size - 1)
    else:
        index = int(nearest_even(grid, np.array([number]))[0])
    return np.float32(grid[index])


def microscaling_scale(amax: Any, value: str, rounding: str) -> np.float32:
    """Return the power of two of the OCP MX floor rule, or of that rule after rounding amax."""
    if amax == 0:
        return np.float32(2.0**-127)
    mantissa, exponent = math.frexp(float(amax))  # mantissa in [0.5, 1)
    carry = rounding == "even" and 2 * mantissa + 2.0 ** -(MANTISSA_BITS[value] + 1) >= 2
    exponent += -1 + carry - EMAX[value]
    return np.float32(2.0 ** min(max(exponent, -127), 127))


def half_range(scheme: Any) -> float:
    """Return what amax is divided by to give the raw scale."""
    if scheme.mode == "lookup":
        return max(abs(entry) for entry in scheme.table)
    if scheme.value in MAXIMA:
        return MAXIMA[scheme.value]
    low, high = INTEGER_RANGES[scheme.value]
    return (high - low) / 2


def mean_magnitude(block: np.ndarray) -> float:
    """Return mean |x| of the finite numbers of a block, summed in the documented order."""
    finite = np.isfinite(block)
    numbers = np.where(finite, np.abs(block), 0).astype(np.float64).ravel()
    total = 0.0
    for start in range(0, numbers.size, 65536):
        lanes = np.zeros(256)
        for row in range(start, min(start + 65536, numbers.size), 256):
            piece = numbers[row : min(row + 256, start + 65536)]
            lanes[: piece.size] += piece
        while lanes.size > 1:
            lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
        total += float(lanes[0])
    return total / finite.sum() if finite.any() else 0.0


def statistic(block: np.ndarray, method: str) -> Any:
    """Return max |x| or mean |x| over the finite numbers of a block, in the compute type."""
    if method == "absmean":
        return block.dtype.type(mean_magnitude(block))
    finite = block[np.isfinite(block)]
    return np.abs(finite).max() if finite.size else block.dtype.type(0)


class Expected(NamedTuple):
    """What the contract says an array becomes."""

    codes: np.ndarray
    scales: np.ndarray
    global_scale: np.float32 | None
    zero_points: np.ndarray | None


def full_block(scheme: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the block extent of every axis."""
    if scheme.block is None:
        return tuple(max(extent, 1) for extent in shape)
    block = () if scheme.block == (1,) else scheme.block
    return (1,) * (len(shape) - len(block)) + tuple(block)


def grid_of(scheme: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the scales."""
    if scheme.block is None:
        return ()
    return tuple(-(-n // b) for n, b in zip(shape, full_block(scheme, shape), strict=True))


def blocks_of(scheme: Any, shape: tuple[int, ...]) -> list[tuple[Any, tuple[slice, ...]]]:
    """Return (index into the scales, slices of the array) of every block."""
    extents = full_block(scheme, shape)
    if scheme.block is None:
        return [((), tuple(slice(None) for _ in shape))]
    return [
        (place, tuple(slice(i * b, (i + 1) * b) for i, b in zip(place, extents, strict=True)))
        for place in np.ndindex(*grid_of(scheme, shape))
    ]


def calibrate(
    x: np.ndarray, scheme: Any, scale_rounding: str = "up", method: str = "minmax", **_: Any
) -> Expected:
    """Return the parameters of an array (its codes left empty)."""
    kind = compute_type(x.dtype)
    x = x.astype(kind)
    grid = grid_of(scheme, x.shape)
    places = blocks_of(scheme, x.shape)
    scales = np.zeros(grid, np.float32)
    if scheme.mode == "affine":
        zero_points = np.zeros(grid, np.int32)
        for place, where in places:
            scales[place], zero_points[place] = _affine(x[where], scheme, scale_rounding)
        return Expected(np.empty(0), scales, None, zero_points)
    raw = np.zeros(grid, kind)
    for place, where in places:
        with np.errstate(over="ignore"):  # only where a table's entries are below 1
            raw[place] = statistic(x[where], method) / kind(half_range(scheme))
    dtype = scheme.block_scale or scheme.tensor_scale or "F32"
    if scheme.block is not None and scheme.tensor_scale is not None:
        return Expected(np.empty(0), *_two_levels(raw, dtype, scale_rounding), None)
    for place, where in places:
        if scale_rounding in {"floor", "even"}:
            amax = statistic(x[where], method)
            scales[place] = microscaling_scale(amax, scheme.value, scale_rounding)
        else:
            scales[place] = store_scale(raw[place], dtype, scale_rounding)
    return Expected(np.empty(0), scales, None, None)


def _affine(block: np.ndarray, scheme: Any, scale_rounding: str) -> tuple[np.float32, int]:
    kind = block.dtype.type
    a, b = INTEGER_RANGES[scheme.value]
    finite = block[np.isfinite(block)]
    low = min(kind(0), finite.min()) if finite.size else kind(0)
    high = max(kind(0), finite.max()) if finite.size else kind(0)
    with np.errstate(over="ignore"):
        raw = (high - low) / kind(b - a)
    if np.isinf(raw):
        raw = (high / 2 - low / 2) / kind((b - a) / 2)
    if low == high == 0:
        return np.float32(1), min(max(0, a), b)
    dtype = scheme.block_scale or scheme.tensor_scale or "F32"
    scale = store_scale(raw, dtype, scale_rounding)
    if scale == 0:
        return scale, min(max(0, a), b)
    with np.errstate(over="ignore"):
        zero = np.rint(kind(a) - low / kind(scale))
    return scale, int(np.clip(zero, a, b))


def _two_levels(raw: np.ndarray, dtype: str, scale_rounding: str) -> tuple[np.ndarray, np.float32]:
    kind = raw.dtype.type
    top = kind(min(float(raw.max()) if raw.size else 0.0, FLOAT32_MAX))
    unit = store_scale(top / kind(SCALE_MAXIMA[dtype]), "F32", scale_rounding)
    unit = max(unit, np.float32(2.0**-126))
    while float(unit) * SCALE_MAXIMA[dtype] > FLOAT32_MAX:
        unit = np.nextafter(unit, np.float32(0))
    with np.errstate(over="ignore"):
        relative = (raw / kind(unit)).ravel()
    stored = [store_scale(one, dtype, scale_rounding) for one in relative]
    return np.array(stored, np.float32).reshape(raw.shape), unit


def quantize(
    x: np.ndarray,
    scheme: Any,
    params: Any = None,
    rounding: str = "even",
    nonfinite: str = "raise",
    **options: Any,
) -> Expected:
    """Return the codes and the parameters of an array."""
    known = calibrate(x, scheme, **options) if params is None else params
    kind = compute_type(x.dtype)
    x = x.astype(kind)
    signed = scheme.value.startswith("Q") and scheme.mode != "lookup"
    codes = np.zeros(x.shape, np.int8 if signed else np.uint8)
    for place, where in blocks_of(scheme, x.shape):
        e = known.scales[place]
        if known.global_scale is not None:
            e = np.float32(known.global_scale * e)
        zero = 0 if known.zero_points is None else int(known.zero_points[place])
        codes[where] = encode(x[where], scheme, e, zero, rounding, nonfinite)
    return Expected(codes, known.scales, known.global_scale, known.zero_points)


def encode(
    x: np.ndarray, scheme: Any, e: np.float32, zero: int, rounding: str, nonfinite: str
) -> np.ndarray:
    """Return the codes of numbers that share one effective scale."""
    nan = np.isnan(x)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        t = np.where(nan, 0, x / x.dtype.type(e)) if e else np.where(nan, x.dtype.type(0), x)
    if scheme.mode == "lookup":
        if not e:
            return np.zeros(x.shape, np.uint8)
        table = np.array(scheme.table, np.float64)
        home = int(np.abs(table).argmin())  # the entry nearest 0; argmin takes the lower of two
        found = nearest_lower(table, np.where(nan, 0, t))
        return np.where(nan, home, found).astype(np.uint8)
    if scheme.value in MINIFLOATS:
        sign = np.where(np.signbit(x), SIGN[scheme.value], 0)
        if not e:
            codes = np.where(nan, 0, sign)
        else:
            codes = np.where(nan, 0, encode_minifloat(t, scheme.value))
        if nonfinite == "keep":
            codes = np.where(nan, sign | {"E4M3": 0x7F, "E5M2": 0x7E}[scheme.value], codes)
            if scheme.value == "E5M2":
                codes = np.where(np.isinf(x), sign | 0x7C, codes)
        return codes.astype(np.uint8)
    a, b = INTEGER_RANGES[scheme.value]
    if not e:
        return np.full(x.shape, zero)
    whole = np.clip(round_integers(t, rounding), -1e6, 1e6).astype(np.int64)
    return np.where(nan, zero, np.clip(whole + zero, a, b))


def nearest_lower(table: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return indices of the nearest entries of a table, ties to the lower index."""
    numbers = np.clip(numbers.astype(np.float64), table[0], table[-1])
    # Distances of a float32 or float64 from a float32: compare exactly in extended precision.
    distance = np.abs(numbers.astype(np.longdouble)[..., None] - table.astype(np.longdouble))
    return distance.argmin(axis=-1)


def decode(codes: np.ndarray, scheme: Any, params: Any, dtype: Any = np.float32) -> np.ndarray:
    """Return the numbers codes stand for."""
    kind = compute_type(dtype)
    out = np.zeros(codes.shape, kind)
    for place, where in blocks_of(scheme, codes.shape):
        e = params.scales[place]
        if params.global_scale is not None:
            e = np.float32(params.global_scale * e)
        zero = 0 if params.zero_points is None else int(params.zero_points[place])
        with np.errstate(over="ignore", invalid="ignore"):
            out[where] = code_numbers(codes[where], scheme, kind, zero) * kind(e)
    with np.errstate(over="ignore"):
        return out.astype(dtype)


def code_numbers(codes: np.ndarray, scheme: Any, kind: Any, zero: int = 0) -> np.ndarray:
    """Return the numbers of codes at scale 1."""
    if scheme.mode == "lookup":
        return np.array(scheme.table, kind)[codes]
    if scheme.value in MINIFLOATS:
        return minifloat_numbers(scheme.value).astype(kind)[codes]
    return (codes.astype(np.int64) - zero).astype(kind)


def pack(codes: np.ndarray, scheme: Any) -> np.ndarray:
    """Return the words of codes, one Python integer at a time."""
    if scheme.store == "native":
        return codes
    width = BITS[scheme.value]
    kind = np.dtype("<u4") if scheme.store == "packed_u32" else np.dtype("u1")
    per_word = 8 * kind.itemsize // width
    codes = np.atleast_1d(codes)
    lines = np.moveaxis(codes, codes.ndim - 1 - scheme.pack_axis, -1)
    words = np.zeros((*lines.shape[:-1], -(-lines.shape[-1] // per_word)), kind)
    for place in np.ndindex(*lines.shape):
        field = int(lines[place]) % 2**width
        words[(*place[:-1], place[-1] // per_word)] |= field << place[-1] % per_word * width
    return np.ascontiguousarray(np.moveaxis(words, -1, codes.ndim - 1 - scheme.pack_axis))
