"""The short division of the fast kernels gives the correctly rounded quotient, for all mantissas.

With x, y in [1, 2), inverse = RN(1 / y) and guess = RN(x * inverse), the kernels compute
RN(guess + RN(x - guess * y) * inverse). The sum before its rounding is off x / y by less than 4 units
of 2**-24 of a last place, so only quotients that close to the middle between two floats can come out
wrong. All of these are found by solving x * 2**k - middle * y = c for every small c, and tried.
"""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

import cuda_support  # noqa: F401 - skips without numba-cuda, whose kernels this is about
from emulator.floats import fused32

pytestmark = pytest.mark.cuda_emulated
ONE = 1 << 23  # mantissas are ONE to 2 * ONE - 1
CLOSE = 8


@njit
def rounded(number, bits):
    """Return number / 2**bits, nearest even."""
    whole, rest, half = number >> bits, number & ((1 << bits) - 1), 1 << (bits - 1)
    return whole + (rest > half or (rest == half and whole & 1 == 1))


@njit
def divided(number, by):
    """Return number / by, nearest even."""
    whole = number // by
    rest = 2 * (number - whole * by)
    return whole + (rest > by or (rest == by and whole & 1 == 1))


@njit
def short_quotient(x, y):
    """Return what the kernels compute, in units of 2**-25: exact integers throughout."""
    inverse = divided(1 << 47, y)  # units of 2**-24
    product = x * inverse  # units of 2**-47
    bits = 24 if product >= 1 << 47 else 23
    guess = rounded(product, bits)  # units of 2**(bits - 47)
    left = (x << (47 - bits)) - guess * y
    size, cut = abs(left), 0
    while size >> cut >= 1 << 24:
        cut += 1
    if cut:
        size = rounded(size, cut) << cut
    shift = size * inverse if left >= 0 else -size * inverse  # units of guess * 2**-47
    whole, part = guess + (shift >> 47), shift & ((1 << 47) - 1)
    unit = bits - 22  # a unit of guess is 2**unit units of 2**-25
    if whole >= 1 << 24:
        whole, part, unit = whole >> 1, (part >> 1) | ((whole & 1) << 46) | (part & 1), unit + 1
    elif whole < 1 << 23:
        whole, part, unit = (whole << 1) + (part >> 46), (part << 1) & ((1 << 47) - 1), unit - 1
    up = part > 1 << 46 or (part == 1 << 46 and whole & 1 == 1)
    return (whole + up) << unit


@njit
def exact_quotient(x, y):
    """Return the correctly rounded quotient in units of 2**-25."""
    return divided(x << 23, y) << 2 if x >= y else divided(x << 24, y) << 1


@njit
def inverse_modulo(odd, bits):
    """Return the inverse of an odd number modulo 2**bits."""
    inverse = odd
    for _ in range(6):
        inverse *= 2 - odd * inverse
    return inverse & ((1 << bits) - 1)


@njit
def wrong_quotients(first, last):
    """Return how many of the close quotients by first, ..., last - 1 are wrong, and how many there are."""
    wrong, tried = 0, 0
    for y in range(first, last):
        zeros = 0
        while y >> zeros & 1 == 0:
            zeros += 1
        for bits in (25, 24):  # quotients below 1, and from 1 on
            free = bits - zeros
            step = 1 << max(free, 0)
            for c in range(-CLOSE, CLOSE + 1):
                if c == 0 or c & ((1 << zeros) - 1):
                    continue
                middle = (-(c >> zeros) * inverse_modulo(y >> zeros, free)) & (step - 1)
                middle += (ONE * 2 - middle + step - 1) // step * step
                while middle < 4 * ONE:
                    number = middle * y + c
                    x = number >> bits
                    fits = number & ((1 << bits) - 1) == 0 and ONE <= x < 2 * ONE
                    if fits and middle & 1 and (x < y) == (bits == 25):
                        tried += 1
                        wrong += short_quotient(x, y) != exact_quotient(x, y)
                    middle += step
    return wrong, tried


def test_every_close_quotient():
    wrong, tried = wrong_quotients(ONE, 2 * ONE)
    assert tried > 40_000_000
    assert wrong == 0


def test_the_integers_above_are_what_floats_do():
    random = np.random.default_rng(0)
    x, y = (random.integers(ONE, 2 * ONE, 100_000) for _ in range(2))
    a, b = x.astype(np.float32), y.astype(np.float32)
    inverse = np.float32(1) / b
    guess = a * inverse
    result = fused32(-fused32(guess, b, -a), inverse, guess)
    assert (result == a / b).all()
    units = np.array([short_quotient(*pair) for pair in zip(x[:20_000], y[:20_000], strict=True)])
    assert (units * 2.0**-25 == result[:20_000]).all()
