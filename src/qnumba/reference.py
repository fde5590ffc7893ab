"""The definition of every operation, in plain NumPy: slow, obvious, the oracle.

Only divisions and products happen in the compute type (float32, or float64 for float64 input);
rounding to a grid is done in float64, where it is exact.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.formats import GLOBAL_TINY, SCALES, decode_table, global_max, thresholds
from qnumba.params import Options, Params

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from qnumba.formats import ScaleType
    from qnumba.layout import Plan

_CHUNK, _LANES = 65536, 256
_KEPT_NAN = {"E4M3": 0x7F, "E5M2": 0x7E}
_KEPT_INFINITY = {"E5M2": 0x7C}


def calibrate(x: NDArray[Any], plan: Plan, options: Options) -> tuple[Params, bool]:
    """Return the parameters of an array, and whether it holds NaN or infinity.

    Parameters
    ----------
    x : numpy.ndarray
        float16, bfloat16, float32 or float64, of shape ``plan.shape``.
    plan : Plan
        Where the blocks are.
    options : Options
        ``scale_rounding`` and ``method`` are used. Values that are not finite never enter a range.

    Returns
    -------
    Params, bool
    """
    x = _widen(x)
    finite = np.isfinite(x)
    numbers = np.where(finite, x, 0)
    if plan.scheme.mode == "affine":
        return _affine_params(numbers, plan, options), not finite.all()
    statistic = {"minmax": _amax, "absmean": _absmean}[options.method]
    return _symmetric_params(statistic(numbers, finite, plan), plan, options), not finite.all()


def quantize(
    x: NDArray[Any], plan: Plan, options: Options, params: Params | None, words: NDArray[Any]
) -> tuple[Params, bool]:
    """Fill ``words`` with the codes of an array; calibrate it first where params is None.

    Returns
    -------
    Params, bool
        The parameters used, and whether the array holds NaN or infinity.
    """
    if params is None:
        params = calibrate(x, plan, options)[0]
    x = _widen(x)
    scale = _per_element(_effective(params), plan)
    with np.errstate(all="ignore"):
        ratio = np.where(scale == 0, 0, x / np.where(scale == 0, 1, scale).astype(x.dtype))
    if plan.scheme.mode == "lookup":
        codes = _lookup_codes(ratio, scale, plan)
    elif plan.value.kind == "float":
        codes = _float_codes(x, ratio, plan, options)
    else:
        codes = _int_codes(ratio, params, plan, options)
    pack(codes.astype(plan.code_dtype), plan, words)
    return params, not np.isfinite(x).all()


def dequantize(words: NDArray[Any], plan: Plan, params: Params, out: NDArray[Any]) -> None:
    """Fill ``out`` (float16, bfloat16, float32 or float64) with the numbers codes stand for."""
    codes = np.empty(plan.shape, plan.code_dtype)
    unpack(words, plan, codes)
    compute = np.float64 if out.dtype == np.float64 else np.float32
    table = decode_table(plan.value.name) if plan.table is None else plan.table
    mask = 2**plan.value.bits - 1
    numbers = table[codes.view(np.uint8) & mask].astype(compute)
    if params.zero_points is not None:
        numbers -= _per_element(params.zero_points, plan).astype(compute)
    with np.errstate(all="ignore"):
        numbers = numbers * _per_element(_effective(params), plan).astype(compute)
        if out.dtype.name == "bfloat16":
            out.view(np.uint16)[...] = _to_bfloat16(numbers.astype(np.float32))
        else:
            out[...] = numbers.astype(out.dtype)


def pack(codes: NDArray[Any], plan: Plan, words: NDArray[Any]) -> None:
    """Fill ``words`` with codes: the first in the lowest bits, lines padded with zeros."""
    if plan.scheme.store == "native":
        words[...] = codes.view(words.dtype)
        return
    before, length, after = plan.packed
    bits = plan.code_bits
    per_word = words.dtype.itemsize * 8 // bits
    lines = -(-length // per_word)
    padded = np.zeros((before, lines * per_word, after), np.uint32)
    padded[:, :length] = codes.view(np.uint8).reshape(before, length, after) & (2**bits - 1)
    fields = padded.reshape(before, lines, per_word, after)
    shifts = np.arange(per_word, dtype=np.uint32)[:, None] * np.uint32(bits)
    words[...] = np.bitwise_or.reduce(fields << shifts, axis=2).reshape(words.shape)


def unpack(words: NDArray[Any], plan: Plan, codes: NDArray[Any]) -> None:
    """Fill ``codes`` from words; two's complement values are sign-extended."""
    if plan.scheme.store == "native":
        codes[...] = words.view(codes.dtype)
        return
    before, length, after = plan.packed
    bits = plan.code_bits
    per_word = words.dtype.itemsize * 8 // bits
    shifts = np.arange(per_word, dtype=np.uint32)[:, None] * np.uint32(bits)
    lines = -(-length // per_word)
    fields = words.astype(np.uint32).reshape(before, lines, 1, after) >> shifts
    fields = fields.reshape(before, lines * per_word, after)[:, :length] & np.uint32(2**bits - 1)
    if plan.is_signed:
        numbers = fields.astype(np.int64)
        fields = np.where(numbers >= 2 ** (bits - 1), numbers - 2**bits, numbers)
    codes[...] = fields.reshape(plan.shape)


def store_scale(raw: NDArray[Any], row: ScaleType, rule: str) -> NDArray[np.float32]:
    """Return scales as a dtype stores them: rounded up or to nearest even, saturating.

    Parameters
    ----------
    raw : numpy.ndarray
        Scales of at least 0, float32 or float64; infinity saturates.
    row : ScaleType
        The dtype to store in.
    rule : str
        ``"up"`` or ``"nearest"``.
    """
    raw = np.minimum(np.asarray(raw, np.float64), row.max)
    if rule == "up":
        stored = _to_grid(raw, row.mantissa_bits, row.tiny, np.ceil)
    elif row.mantissa_bits:
        stored = _to_grid(raw, row.mantissa_bits, row.tiny, np.rint)
    else:
        stored = _nearest_power(raw)
    stored = np.minimum(stored, row.max)
    return np.asarray(np.maximum(stored, row.zero), np.float32)


def _to_grid(
    numbers: NDArray[np.float64],
    mantissa_bits: int,
    tiny: float,
    rounded: Callable[[Any], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Round numbers of at least 0 to multiples of the step of their exponent."""
    exponent = np.frexp(numbers)[1] - 1
    step = np.maximum(np.ldexp(1.0, exponent - mantissa_bits), tiny)
    return np.asarray(rounded(numbers / step) * step)


def _nearest_power(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to the nearest power of two; a tie goes to the even byte of UE8M0."""
    exponent = np.frexp(numbers)[1] - 1
    part = numbers / np.ldexp(1.0, exponent)
    middle = 1.5
    goes_up = (part > middle) | ((part == middle) & (exponent % 2 == 0))  # byte = exponent + 127
    return np.asarray(np.ldexp(1.0, exponent + goes_up) * (numbers > 0))


def _widen(x: NDArray[Any]) -> NDArray[Any]:
    """Return an array in its compute type."""
    if x.dtype.name == "bfloat16":
        return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float64 if x.dtype == np.float64 else np.float32)


def _to_bfloat16(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return bfloat16 bits, rounded to nearest even; NaN stays NaN."""
    bits = numbers.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(numbers), bits >> 16 | 0x40, rounded).astype(np.uint16)


def _block_of(plan: Plan) -> NDArray[np.int64]:
    """Return the flat index of every element's block."""
    index = np.zeros(plan.shape, np.int64)
    if plan.grid:
        for axis, (step, blocks) in enumerate(zip(plan.block, plan.grid, strict=True)):
            along = (np.arange(plan.shape[axis]) // step).reshape(
                [-1 if a == axis else 1 for a in range(len(plan.shape))]
            )
            index = index * blocks + along
    return index


def _per_element(per_block: Any, plan: Plan) -> NDArray[Any]:
    """Return each block's number at every element of the block."""
    return np.asarray(per_block).reshape(-1)[_block_of(plan)]


def _effective(params: Params) -> NDArray[np.float32]:
    """Return the scales codes are multiplied by."""
    if params.global_scale is None:
        return params.scales
    return np.asarray(np.float32(params.global_scale) * params.scales, np.float32)


def _amax(numbers: NDArray[Any], _finite: NDArray[np.bool_], plan: Plan) -> NDArray[Any]:
    """Return the largest magnitude of every block."""
    amax = np.zeros(int(np.prod(plan.grid)), numbers.dtype)
    np.maximum.at(amax, _block_of(plan).reshape(-1), np.abs(numbers).reshape(-1))
    return amax.reshape(plan.grid)


def _absmean(numbers: NDArray[Any], finite: NDArray[np.bool_], plan: Plan) -> NDArray[Any]:
    """Return the mean magnitude of every block, over its finite values."""
    blocks = _block_of(plan).reshape(-1)
    order = np.argsort(blocks, kind="stable")
    edges = np.searchsorted(blocks[order], np.arange(int(np.prod(plan.grid)) + 1))
    sizes = np.abs(numbers).reshape(-1)[order].astype(np.float64)
    counted = finite.reshape(-1)[order]
    means = [
        _sum_in_lanes(sizes[a:b]) / max(int(counted[a:b].sum()), 1) for a, b in pairwise(edges)
    ]
    return np.array(means, np.float64).astype(numbers.dtype).reshape(plan.grid)


def _sum_in_lanes(sizes: NDArray[np.float64]) -> np.float64:
    """Add numbers in the one order every backend uses."""
    total = np.float64(0)
    for start in range(0, sizes.size, _CHUNK):
        chunk = sizes[start : start + _CHUNK]
        padded = np.zeros(-(-chunk.size // _LANES) * _LANES)
        padded[: chunk.size] = chunk
        with np.errstate(over="ignore"):
            lanes = np.zeros(_LANES)
            for row in padded.reshape(-1, _LANES):
                lanes += row
            while lanes.size > 1:
                lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
            total += lanes[0]
    return total


def _symmetric_params(statistic: NDArray[Any], plan: Plan, options: Options) -> Params:
    """Return the scales that put a statistic at the end of the range."""
    rule = options.scale_rounding
    if rule in {"floor", "even"}:
        return Params(_power_scales(statistic, plan, rule))
    largest = plan.value.half_range if plan.table is None else np.abs(plan.table).max()
    with np.errstate(over="ignore"):  # a table of tiny numbers: the scale saturates
        raw = np.asarray(statistic / statistic.dtype.type(largest))
    if not plan.scheme.two_level:
        return Params(store_scale(raw, plan.scale, rule))
    raw = np.minimum(raw, raw.dtype.type(SCALES["F32"].max))
    share = raw.max(initial=0) / raw.dtype.type(plan.scale.max)
    stored = store_scale(share, SCALES["F32"], rule)
    global_scale = np.float32(np.clip(stored, GLOBAL_TINY, global_max(plan.scale)))
    raw = raw / raw.dtype.type(global_scale)
    return Params(store_scale(raw, plan.scale, rule), global_scale)


def _power_scales(statistic: NDArray[Any], plan: Plan, rule: str) -> NDArray[np.float32]:
    """Return the power-of-two scales of the OCP rule (floor) or its rounded form (even)."""
    exponent = np.frexp(statistic)[1] - 1
    if rule == "even":
        fraction_bits, bias = (52, 1023) if statistic.dtype == np.float64 else (23, 127)
        bits = statistic.view(f"u{statistic.itemsize}").astype(np.uint64)
        half = np.uint64(1) << np.uint64(fraction_bits - 1 - plan.value.mantissa_bits)
        exponent = ((bits + half) >> np.uint64(fraction_bits)).astype(np.int64) - bias
    exponent = np.clip(exponent - plan.value.emax, -127, 127)
    scales = np.where(statistic == 0, plan.scale.zero, np.ldexp(1.0, exponent))
    return scales.astype(np.float32)


def _affine_params(numbers: NDArray[Any], plan: Plan, options: Options) -> Params:
    """Return the scale and zero point that span every block's range and 0."""
    compute = numbers.dtype.type
    lo = np.zeros(int(np.prod(plan.grid)), numbers.dtype)
    hi = lo.copy()
    np.minimum.at(lo, _block_of(plan).reshape(-1), numbers.reshape(-1))
    np.maximum.at(hi, _block_of(plan).reshape(-1), numbers.reshape(-1))
    a, b = plan.value.lo, plan.value.hi
    with np.errstate(all="ignore"):
        raw = np.where(
            np.isfinite(hi - lo),
            (hi - lo) / compute(b - a),
            (hi / 2 - lo / 2) / compute((b - a) / 2),
        )
        raw = np.where(hi == lo, compute(1), raw)
        scales = store_scale(raw, plan.scale, options.scale_rounding)
        points = np.clip(np.rint(compute(a) - lo / scales.astype(numbers.dtype)), a, b)
    points = np.where((scales == 0) | (hi == lo), np.clip(0, a, b), points)
    return Params(scales.reshape(plan.grid), zero_points=points.astype(np.int32).reshape(plan.grid))


def _int_codes(
    ratio: NDArray[Any], params: Params, plan: Plan, options: Options
) -> NDArray[np.int64]:
    """Round, clamp in float, then add the zero point. NaN becomes the code of 0."""
    points = params.zero_points
    point = np.zeros(plan.shape, np.int64) if points is None else _per_element(points, plan)
    whole = np.trunc(ratio)
    with np.errstate(invalid="ignore"):
        ends_far = np.abs(ratio - whole) >= 0.5  # noqa: PLR2004 - half a step
    away = whole + np.copysign(ends_far, ratio)
    rounded = np.rint(ratio) if options.rounding == "even" else away
    steps = np.clip(rounded, plan.value.lo - point, plan.value.hi - point)
    return np.where(np.isnan(ratio), 0, steps).astype(np.int64) + point


def _float_codes(
    x: NDArray[Any], ratio: NDArray[Any], plan: Plan, options: Options
) -> NDArray[np.int64]:
    """Round to the nearest minifloat, ties to even, saturating; the sign of x is kept."""
    value = plan.value
    sign = np.signbit(x) * 2 ** (value.bits - 1)
    size = np.minimum(np.nan_to_num(np.abs(ratio).astype(np.float64)), value.hi)
    positive = decode_table(value.name)[: 2 ** (value.bits - 1)]
    finite = positive[np.isfinite(positive)].astype(np.float64)
    nearest = _to_grid(size, value.mantissa_bits, value.tiny, np.rint)
    codes: NDArray[np.int64] = np.searchsorted(finite, nearest) | sign
    if options.nonfinite != "keep":
        return np.where(np.isnan(x), 0, codes)
    codes = np.where(np.isnan(x), _KEPT_NAN[value.name] | sign, codes)
    infinity = _KEPT_INFINITY.get(value.name)
    return codes if infinity is None else np.where(np.isinf(x), infinity | sign, codes)


def _lookup_codes(ratio: NDArray[Any], scale: NDArray[np.float32], plan: Plan) -> NDArray[np.int64]:
    """Return the index of the nearest entry, ties to the lower one."""
    edges = thresholds(plan.scheme.table or (), ratio.dtype.name)
    codes = np.searchsorted(edges, np.where(np.isnan(ratio), 0, ratio))
    return np.where(scale == 0, 0, codes)
