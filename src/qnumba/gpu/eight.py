"""Eight neighbours at a time: read, reduced, turned into codes, and back.

A fast kernel is put together from one function of each table below, by the format it serves.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int64, uint32
from numba.extending import register_jitable

from qnumba.gpu.ptx import (
    bfloat_pair,
    bits32,
    float_of,
    fused,
    half_pair,
    half_to_float,
    largest,
    load2,
    load4,
    multiply,
    number_at,
    reciprocal,
    store2,
    store4,
)

U, F = uint32, float32
INFINITE = 0x7F800000  # bits of infinity; a magnitude's bits from here on are not finite
_STEEP = F(2.0**20)  # quotients up to here round exactly as they should
_SMALL, _LARGE = F(2.0**-80), F(2.0**100)  # scales whose quotients meet no subnormal number


# --- reading: the pointer's type says what an element is


@register_jitable
def low_half(word):
    """Return the float32 of the bfloat16 in the low half of a word."""
    return float_of(U(word << U(16)))


@register_jitable
def high_half(word):
    """Return the float32 of the bfloat16 in the high half of a word."""
    return float_of(U(word & U(0xFFFF0000)))


@register_jitable
def load_float32(x, group):
    """Return eight float32."""
    a, b = load4(x, int64(group) * 8), load4(x, int64(group) * 8 + 4)
    return (
        *(float_of(a[0]), float_of(a[1]), float_of(a[2]), float_of(a[3])),
        *(float_of(b[0]), float_of(b[1]), float_of(b[2]), float_of(b[3])),
    )


@register_jitable
def load_bfloat16(x, group):
    """Return eight bfloat16 as float32."""
    a = load4(x, int64(group) * 8)
    return (
        *(low_half(a[0]), high_half(a[0]), low_half(a[1]), high_half(a[1])),
        *(low_half(a[2]), high_half(a[2]), low_half(a[3]), high_half(a[3])),
    )


@register_jitable
def two_halves(word):
    """Return two float16 as float32."""
    return half_to_float(np.uint16(word & U(0xFFFF))), half_to_float(np.uint16(word >> U(16)))


@register_jitable
def load_float16(x, group):
    """Return eight float16 as float32."""
    a = load4(x, int64(group) * 8)
    return two_halves(a[0]) + two_halves(a[1]) + two_halves(a[2]) + two_halves(a[3])


LOADS = {"float32": load_float32, "float16": load_float16, "bfloat16": load_bfloat16}


# --- reducing


@register_jitable
def largest_of(v):
    """Return the largest magnitude of eight; NaN if one is NaN."""
    a, b = largest(v[0], v[1]), largest(v[2], v[3])
    c, d = largest(v[4], v[5]), largest(v[6], v[7])
    return largest(largest(a, b), largest(c, d))


@register_jitable
def finite_magnitude(x, begin, count):
    """Return the bits of the largest finite magnitude of ``count`` neighbours."""
    most = U(0)
    for k in range(count):
        bits = U(bits32(number_at(x, begin + k)) & U(0x7FFFFFFF))
        most = max(most, bits) if bits < U(INFINITE) else most
    return most


# --- dividing by a scale


@register_jitable
def is_plain(most, scale):
    """Return whether eight quotients can take the short way, from the largest magnitude's bits."""
    amax = float_of(most)
    return _SMALL <= scale <= _LARGE and amax <= multiply(scale, _STEEP)


@register_jitable
def quotient(x, scale, inverse):
    """Return x / scale correctly rounded, given the correctly rounded 1 / scale.

    A product, its exact remainder, and one correction. That this is the rounded quotient for every
    pair of mantissas is shown exhaustively in ``tests/gpu/test_division.py``; ``is_plain`` keeps
    exponents where nothing underflows.
    """
    guess = multiply(x, inverse)
    excess = fused(guess, scale, F(-x))  # this sign lets -0.0 through as -0.0
    return fused(F(-excess), inverse, guess)


@register_jitable
def quotients(v, scale, inverse):
    """Return eight quotients."""
    return (
        *(quotient(v[0], scale, inverse), quotient(v[1], scale, inverse)),
        *(quotient(v[2], scale, inverse), quotient(v[3], scale, inverse)),
        *(quotient(v[4], scale, inverse), quotient(v[5], scale, inverse)),
        *(quotient(v[6], scale, inverse), quotient(v[7], scale, inverse)),
    )


@register_jitable
def inverse_power(scale):
    """Return the inverse of a power of two that ``is_plain`` lets through."""
    return float_of(U(U(0x7F000000) - bits32(scale)))


@register_jitable
def shifted(v, _scale, inverse):
    """Return eight quotients by a power of two, whose inverse is exact."""
    return products(v, inverse)


@register_jitable
def products(v, inverse):
    """Return eight numbers times another."""
    return (
        *(multiply(v[0], inverse), multiply(v[1], inverse), multiply(v[2], inverse)),
        *(multiply(v[3], inverse), multiply(v[4], inverse), multiply(v[5], inverse)),
        *(multiply(v[6], inverse), multiply(v[7], inverse)),
    )


# How scales are inverted, and what divides by them; powers of two have ways of their own.
DIVISIONS = {True: (inverse_power, shifted), False: (reciprocal, quotients)}


# --- writing and reading the words of eight codes


@register_jitable
def put_8(words, group, low, high):
    """Write eight codes of 8 bits."""
    store2(words, int64(group) * 2, (low, high))


@register_jitable
def put_4(words, group, low, _high):
    """Write eight codes of 4 bits."""
    words[group] = low


@register_jitable
def put_2(words, group, low, _high):
    """Write eight codes of 2 bits."""
    words[group] = np.uint16(low & U(0xFFFF))


@register_jitable
def get_8(words, group):
    """Read eight codes of 8 bits."""
    return load2(words, int64(group) * 2)


@register_jitable
def get_4(words, group):
    """Read eight codes of 4 bits."""
    return U(words[group]), U(0)


@register_jitable
def get_2(words, group):
    """Read eight codes of 2 bits."""
    return U(words[group]), U(0)


PUTS = {8: put_8, 4: put_4, 2: put_2}
GETS = {8: get_8, 4: get_4, 2: get_2}


# --- writing eight numbers


@register_jitable
def save_float32(out, group, y):
    """Write eight float32."""
    place = int64(group) * 8
    store4(out, place, (bits32(y[0]), bits32(y[1]), bits32(y[2]), bits32(y[3])))
    store4(out, place + 4, (bits32(y[4]), bits32(y[5]), bits32(y[6]), bits32(y[7])))


@register_jitable
def save_float16(out, group, y):
    """Write eight float16."""
    low = (half_pair(y[0], y[1]), half_pair(y[2], y[3]))
    store4(out, int64(group) * 8, (*low, half_pair(y[4], y[5]), half_pair(y[6], y[7])))


@register_jitable
def save_bfloat16(out, group, y):
    """Write eight bfloat16."""
    low = (bfloat_pair(y[0], y[1]), bfloat_pair(y[2], y[3]))
    store4(out, int64(group) * 8, (*low, bfloat_pair(y[4], y[5]), bfloat_pair(y[6], y[7])))


SAVES = {"float32": save_float32, "float16": save_float16, "bfloat16": save_bfloat16}
