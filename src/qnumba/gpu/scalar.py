"""Arithmetic on one number: scales as they are stored, codes, and the way back.

Everything that differs between formats arrives as numbers. Rounding to a grid is done in float64,
where it is exact; divisions and products are done in the compute type.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64
from numba.extending import register_jitable

from qnumba.gpu.ptx import bits64, ceil, double_of, rint, trunc

INT, MINIFLOAT, LOOKUP = 0, 1, 2
UP, NEAREST, FLOOR, EVEN = 0, 1, 2, 3
_BIAS, _FRACTION = 1023, 52
_MIDDLE = 1.5
_NAN = np.float32(np.nan)
_INFINITY = np.float32(np.inf)


@register_jitable
def power_of_two(exponent):
    """Return 2.0**exponent for exponents of normal float64 numbers."""
    return double_of((exponent + _BIAS) << _FRACTION)


@register_jitable
def exponent_of(number):
    """Return the exponent of a float64 of at least 0: -1023 for zero and subnormal numbers."""
    return (bits64(number) >> _FRACTION) - _BIAS


@register_jitable
def is_finite(number):
    """Return whether a number is neither NaN nor infinite."""
    return number - number == 0


@register_jitable
def in_type(number, wide):
    """Return a float64 rounded to the compute type."""
    return number if wide else float64(float32(number))


@register_jitable
def ratio_in_type(x, y, wide):
    """Return x / y in the compute type, of two numbers that it holds."""
    return x / y if wide else float64(float32(x) / float32(y))


@register_jitable
def store_scale(raw, row, rule):
    """Return a scale as its dtype stores it: rounded up or to nearest even, saturating.

    ``row`` is (mantissa bits, exponent of the smallest, largest, what zero is stored as).
    """
    mantissa_bits, tiny_exponent, most, zero = row
    raw = min(raw, most)
    if rule == NEAREST and mantissa_bits == 0:
        stored = nearest_power(raw)
    else:
        step = max(exponent_of(raw) - int64(mantissa_bits), int64(tiny_exponent))
        steps = raw * power_of_two(-step)
        stored = (ceil(steps) if rule == UP else rint(steps)) * power_of_two(step)
    return float32(max(min(stored, most), zero))


@register_jitable
def nearest_power(number):
    """Return the power of two nearest to a float64; a tie goes to the even UE8M0 byte."""
    exponent = max(exponent_of(number), int64(-130))
    part = number * power_of_two(-exponent)
    goes_up = part > _MIDDLE or (part == _MIDDLE and exponent % 2 == 0)
    return power_of_two(exponent + (int64(1) if goes_up else int64(0)))


@register_jitable
def power_scale(statistic, emax, mantissa_bits, zero, rule):
    """Return the power-of-two scale of the OCP rule (floor) or of its rounded form (even)."""
    if statistic == 0:
        return float32(zero)
    bits = bits64(statistic)
    if rule == EVEN:
        bits += int64(1) << (_FRACTION - 1 - mantissa_bits)
    exponent = (bits >> _FRACTION) - _BIAS - emax
    return float32(power_of_two(min(max(exponent, int64(-127)), int64(127))))


@register_jitable
def int_code(ratio, point, lo, hi, away):
    """Return the integer code of a ratio: rounded, clamped in float, the zero point added."""
    if ratio != ratio:  # noqa: PLR0124 - NaN
        return int32(point)
    rounded = rint(ratio)
    if away:
        rounded = trunc(ratio)
        if abs(ratio - rounded) >= 0.5:  # noqa: PLR2004 - half a step
            rounded += 1 if ratio > 0 else -1
    return int32(min(max(rounded, lo - point), hi - point)) + int32(point)


@register_jitable
def minifloat_code(x, ratio, row):
    """Return the minifloat code of a ratio, with the sign of x: nearest, ties to even, saturating.

    ``row`` is (bits, mantissa bits, exponent of the smallest, largest, code of NaN, code of
    infinity); the last two are -1 where NaN becomes 0 and infinity saturates.
    """
    code_bits, mantissa_bits, tiny_exponent, most, nan_code, infinity_code = row
    sign = int32(1) << (code_bits - 1) if is_negative(x) else int32(0)
    if x != x:  # noqa: PLR0124 - NaN
        return int32(0) if nan_code < 0 else nan_code | sign
    if infinity_code >= 0 and not is_finite(x):
        return infinity_code | sign
    size = min(float64(abs(ratio)), float64(most))
    step = max(exponent_of(size) - int64(mantissa_bits), int64(tiny_exponent))
    steps = int32(rint(size * power_of_two(-step)))
    return (steps + (int32(step - tiny_exponent) << mantissa_bits)) | sign


@register_jitable
def is_negative(x):
    """Return whether the sign bit of a number is set."""
    return bits64(float64(x)) < 0


@register_jitable
def lookup_code(ratio, edges, count):
    """Return the index of the table entry nearest to a ratio: how many edges lie below it."""
    key = float64(ratio) if ratio == ratio else 0.0  # noqa: PLR0124 - NaN
    lo, hi = int32(0), int32(count)
    while lo < hi:
        middle = int32((lo + hi) >> 1)
        if float64(edges[middle]) < key:
            lo = int32(middle + 1)
        else:
            hi = middle
    return lo


@register_jitable
def int_number(code, bits, signed):
    """Return the number an integer code stands for, as float32."""
    if signed and code >> (bits - 1):
        return float32(code - (int32(1) << bits))
    return float32(code)


@register_jitable
def minifloat_number(code, row):
    """Return the number a minifloat code stands for, as float32; ``row`` as there."""
    code_bits, mantissa_bits, tiny_exponent, most, _, _ = row
    size = code & ((int32(1) << (code_bits - 1)) - 1)
    exponent = size >> mantissa_bits
    mantissa = size & ((int32(1) << mantissa_bits) - 1)
    if exponent:
        mantissa += int32(1) << mantissa_bits
        exponent -= 1
    number = float32(mantissa) * float32(power_of_two(int64(tiny_exponent + exponent)))
    if number > most:
        has_infinity = mantissa_bits == 2 and mantissa == 4  # noqa: PLR2004 - E5M2, 0x7C
        number = _INFINITY if has_infinity else _NAN
    return -number if code >> (code_bits - 1) else number
