"""Eight codes to the numbers they stand for, before the scale: the parts of fast decoding."""

from __future__ import annotations

import numpy as np
from numba import float32, int32, uint32
from numba.extending import register_jitable

from qnumba.gpu.ptx import float_of, half_to_float, multiply

U, F, I = uint32, float32, int32  # noqa: E741 - the three types of registers
_NAN = F(np.nan)


@register_jitable
def s8_at(word, k):
    """Return a signed code of 8 bits as a number."""
    return F(I(I(U(word << U(24 - 8 * k))) >> I(24)))


@register_jitable
def u8_at(word, k):
    """Return an unsigned code of 8 bits as a number."""
    return F(U(U(word >> U(8 * k)) & U(0xFF)))


@register_jitable
def s4_at(word, k):
    """Return a signed code of 4 bits as a number."""
    return F(I(I(U(word << U(28 - 4 * k))) >> I(28)))


@register_jitable
def u4_at(word, k):
    """Return an unsigned code of 4 bits as a number."""
    return F(U(U(word >> U(4 * k)) & U(15)))


@register_jitable
def s2_at(word, k):
    """Return a signed code of 2 bits as a number."""
    return F(I(I(U(word << U(30 - 2 * k))) >> I(30)))


@register_jitable
def u2_at(word, k):
    """Return an unsigned code of 2 bits as a number."""
    return F(U(U(word >> U(2 * k)) & U(3)))


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


def _eight_of(number_at, per_word):
    """Return the function that decodes eight codes, ``per_word`` of them in each word."""

    @register_jitable
    def numbers(low, high, point, _table):
        second = high if per_word == 4 else low  # noqa: PLR2004 - codes of 8 bits
        return (
            number_at(low, 0) - point,
            number_at(low, 1) - point,
            number_at(low, 2) - point,
            number_at(low, 3) - point,
            number_at(second, 4 % per_word) - point,
            number_at(second, 5 % per_word) - point,
            number_at(second, 6 % per_word) - point,
            number_at(second, 7 % per_word) - point,
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


@register_jitable
def lookup_u4(low, _high, _point, table):
    """Return the entries of eight indices of 4 bits."""
    return (
        *(table[U(low & U(15))], table[U(U(low >> U(4)) & U(15))]),
        *(table[U(U(low >> U(8)) & U(15))], table[U(U(low >> U(12)) & U(15))]),
        *(table[U(U(low >> U(16)) & U(15))], table[U(U(low >> U(20)) & U(15))]),
        *(table[U(U(low >> U(24)) & U(15))], table[U(low >> U(28))]),
    )


NUMBERS = {
    "s8": _eight_of(s8_at, 4),
    "u8": _eight_of(u8_at, 4),
    "s4": _eight_of(s4_at, 8),
    "u4": _eight_of(u4_at, 8),
    "s2": _eight_of(s2_at, 8),
    "u2": _eight_of(u2_at, 8),
    "E4M3": _floats_of(e4m3_at, 4),
    "E5M2": _floats_of(e5m2_at, 4),
    "E2M1": _floats_of(e2m1_at, 8),
    "lookup 4": lookup_u4,
}
