"""Eight codes to the numbers they stand for, before the scale: the parts of fast decoding."""

from __future__ import annotations

import numpy as np
from numba import float32, uint32
from numba.extending import register_jitable

from qnumba.gpu.ptx import float_of, half_to_float, multiply, picked

U, F = uint32, float32
_NAN = F(np.nan)


@register_jitable
def byte_at(word, k):
    """Return 2**23 + a byte of a word: the byte in the fraction of a float32 with that exponent."""
    return float_of(picked(word, U(0x4B000000), U(0x7440 + k)))


@register_jitable
def nibble_at(word, k):
    """Return 2**23 + four bits of a word."""
    return float_of(U(U(U(word >> U(4 * k)) & U(15)) | U(0x4B000000)))


@register_jitable
def crumb_at(word, k):
    """Return 2**23 + two bits of a word."""
    return float_of(U(U(U(word >> U(2 * k)) & U(3)) | U(0x4B000000)))


@register_jitable
def e4m3_at(word, k):
    """Return an E4M3: its bits are those of a float32 2**-120 times as large."""
    code = U(word >> U(8 * k))
    size = U(code & U(0x7F))
    bits = U(U(size << U(20)) | U(U(code & U(0x80)) << U(24)))
    return _NAN if size == U(0x7F) else multiply(float_of(bits), F(2.0**120))


@register_jitable
def e5m2_at(word, k):
    """Return an E5M2: the upper byte of a float16."""
    return half_to_float(np.uint16(U(U(word >> U(8 * k)) & U(0xFF)) << U(8)))


@register_jitable
def e2m1_at(word, k):
    """Return an E2M1: its bits are those of a float32 2**-126 times as large."""
    code = U(word >> U(4 * k))
    bits = U(U(U(code & U(7)) << U(22)) | U(U(code & U(8)) << U(28)))
    return multiply(float_of(bits), F(2.0**126))


def _eight_of(number_at, per_word, signs, sign):
    """Return the function that decodes eight integer codes, ``per_word`` of them in each word.

    ``signs`` has the sign bit of each code, ``sign`` that of one. Turning it over adds it to every
    signed code, and one exact difference takes it, the zero point and 2**23 away.
    """
    offset = 2.0**23 + sign

    @register_jitable
    def numbers(low, high, point, _table):
        a = U(low ^ U(signs))
        b = U(high ^ U(signs)) if per_word == 4 else a  # noqa: PLR2004 - codes of 8 bits
        base = F(point + F(offset))
        return (
            number_at(a, 0) - base,
            number_at(a, 1) - base,
            number_at(a, 2) - base,
            number_at(a, 3) - base,
            number_at(b, 4 % per_word) - base,
            number_at(b, 5 % per_word) - base,
            number_at(b, 6 % per_word) - base,
            number_at(b, 7 % per_word) - base,
        )

    return numbers


def _floats_of(number_at, per_word):
    """Return the same for minifloats, whose zeros keep their sign: nothing is subtracted."""

    @register_jitable
    def numbers(low, high, _point, _table):
        second = high if per_word == 4 else low  # noqa: PLR2004 - codes of 8 bits
        return (
            *(number_at(low, 0), number_at(low, 1), number_at(low, 2), number_at(low, 3)),
            *(number_at(second, 4 % per_word), number_at(second, 5 % per_word)),
            *(number_at(second, 6 % per_word), number_at(second, 7 % per_word)),
        )

    return numbers


def _entries_of(bits):
    """Return the function that looks up eight indices in a table."""
    per_word, mask = 4 if bits == 8 else 8, (1 << bits) - 1  # noqa: PLR2004 - two words of them

    @register_jitable
    def entry(word, k, table):
        return table[U(U(word >> U(bits * k)) & U(mask))]

    @register_jitable
    def numbers(low, high, _point, table):
        second = high if per_word == 4 else low  # noqa: PLR2004 - codes of 8 bits
        return (
            *(entry(low, 0, table), entry(low, 1, table)),
            *(entry(low, 2, table), entry(low, 3, table)),
            *(entry(second, 4 % per_word, table), entry(second, 5 % per_word, table)),
            *(entry(second, 6 % per_word, table), entry(second, 7 % per_word, table)),
        )

    return numbers


NUMBERS = {
    "s8": _eight_of(byte_at, 4, 0x80808080, 128),
    "u8": _eight_of(byte_at, 4, 0, 0),
    "s4": _eight_of(nibble_at, 8, 0x88888888, 8),
    "u4": _eight_of(nibble_at, 8, 0, 0),
    "s2": _eight_of(crumb_at, 8, 0xAAAA, 2),
    "u2": _eight_of(crumb_at, 8, 0, 0),
    "E4M3": _floats_of(e4m3_at, 4),
    "E5M2": _floats_of(e5m2_at, 4),
    "E2M1": _floats_of(e2m1_at, 8),
    "lookup 8": _entries_of(8),
    "lookup 4": _entries_of(4),
    "lookup 2": _entries_of(2),
}
