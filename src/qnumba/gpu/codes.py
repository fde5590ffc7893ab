"""Scales as fast kernels store them, and eight quotients to codes: one function for each format.

What hardware newer than sm_80 has instructions for has a second form here, with the same bits.
"""

from __future__ import annotations

from numba import float32, int32, uint32, uint64
from numba.extending import register_jitable

from qnumba.gpu.general import code_of
from qnumba.gpu.ptx import (
    bits32,
    ceil,
    e2m1_eight,
    e4m3_pair,
    e5m2_pair,
    float_of,
    float_to_half,
    fused,
    half_to_float,
    half_up,
    later,
    multiply,
    number_at,
    pack_eight_s2,
    pack_eight_s4,
    pack_eight_u2,
    pack_eight_u4,
    pack_four_s8,
    pack_four_u8,
    picked,
    rint,
    to_int,
)
from qnumba.gpu.scalar import EVEN, FLOOR, NEAREST, UP

U, F = uint32, float32


# --- storing scales: the smallest stored number that is not below, or the nearest


@register_jitable
def store_f32(raw, _rule, _amax, _power):
    """Return a scale as F32 stores it."""
    return min(raw, F(3.4028234663852886e38))


@register_jitable
def store_f16(raw, rule, _amax, _power):
    """Return a scale as F16 stores it."""
    raw = min(raw, F(65504.0))
    return half_to_float(half_up(raw) if rule == UP else float_to_half(raw))


@register_jitable
def store_bf16(raw, rule, _amax, _power):
    """Return a scale as BF16 stores it."""
    bits = bits32(raw)
    more = U(0xFFFF) if rule == UP else U(U(0x7FFF) + U(U(bits >> U(16)) & U(1)))
    return float_of(min(U(U(bits + more) & U(0xFFFF0000)), U(0x7F7F0000)))


@register_jitable
def store_ue4m3(raw, rule, _amax, _power):
    """Return a scale as UE4M3 stores it."""
    raw = min(raw, F(448.0))
    bits = bits32(raw)
    more = U(0xFFFFF) if rule == UP else U(U(0x7FFFF) + U(U(bits >> U(20)) & U(1)))
    steps = multiply(raw, F(512.0))
    low = multiply(ceil(steps) if rule == UP else rint(steps), F(1 / 512))
    return low if raw < F(2.0**-6) else float_of(U(U(bits + more) & U(0xFFF00000)))


@register_jitable
def store_ue8m0(raw, rule, amax, power):
    """Return a scale as UE8M0 stores it; ``power`` is (emax, mantissa bits) of the value type."""
    if rule in (FLOOR, EVEN):
        bits = bits32(amax)
        if rule == EVEN:
            bits = U(bits + U(U(1) << U(22 - power[1])))
        byte = int32(bits >> U(23)) - int32(power[0])
        byte = max(int32(0), min(byte, int32(254)))
        return float_of(max(U(U(byte) << U(23)), U(0x400000)))
    bits = bits32(raw)
    fraction = U(bits & U(0x7FFFFF))
    exponent = U(bits >> U(23))
    if rule == NEAREST:
        tie = fraction == U(0x400000) and U(exponent & U(1)) == U(1)
        up = fraction > U(0x400000) or tie
        if exponent == U(0):
            up = fraction > U(0x600000)
    else:
        up = fraction > U(0x400000) if exponent == U(0) else fraction != U(0)
    exponent = min(U(exponent + (U(1) if up else U(0))), U(254))
    return float_of(max(U(exponent << U(23)), U(0x400000)))


SCALE_STORES = {
    "F32": store_f32,
    "F16": store_f16,
    "BF16": store_bf16,
    "UE8M0": store_ue8m0,
    "UE4M3": store_ue4m3,
}


# --- codes of eight quotients, as two words (the second unused below eight bits)


@register_jitable
def step_of(y, point, lo):
    """Return a rounded quotient with the zero point, not below lo."""
    return later(int32(to_int(y) + point), lo)


@register_jitable
def steps_of(y, point, lo):
    """Return eight rounded quotients with the zero point, not below lo; packing caps them."""
    return (
        *(step_of(y[0], point, lo), step_of(y[1], point, lo)),
        *(step_of(y[2], point, lo), step_of(y[3], point, lo)),
        *(step_of(y[4], point, lo), step_of(y[5], point, lo)),
        *(step_of(y[6], point, lo), step_of(y[7], point, lo)),
    )


@register_jitable
def codes_s8(y, point, lo, _edges):
    """Return eight signed codes of 8 bits."""
    r = steps_of(y, point, lo)
    return pack_four_s8(r[0], r[1], r[2], r[3]), pack_four_s8(r[4], r[5], r[6], r[7])


@register_jitable
def codes_u8(y, point, lo, _edges):
    """Return eight unsigned codes of 8 bits."""
    r = steps_of(y, point, lo)
    return pack_four_u8(r[0], r[1], r[2], r[3]), pack_four_u8(r[4], r[5], r[6], r[7])


@register_jitable
def codes_s4(y, point, lo, _edges):
    """Return eight signed codes of 4 bits."""
    return pack_eight_s4(steps_of(y, point, lo)), U(0)


@register_jitable
def codes_u4(y, point, lo, _edges):
    """Return eight unsigned codes of 4 bits."""
    return pack_eight_u4(steps_of(y, point, lo)), U(0)


@register_jitable
def codes_s2(y, point, lo, _edges):
    """Return eight signed codes of 2 bits."""
    return pack_eight_s2(steps_of(y, point, lo)), U(0)


@register_jitable
def codes_u2(y, point, lo, _edges):
    """Return eight unsigned codes of 2 bits."""
    return pack_eight_u2(steps_of(y, point, lo)), U(0)


@register_jitable
def codes_e4m3(y, _point, _lo, _edges):
    """Return eight E4M3, by the hardware (sm_89 and newer)."""
    low = U(U(e4m3_pair(y[0], y[1])) | U(U(e4m3_pair(y[2], y[3])) << U(16)))
    return low, U(U(e4m3_pair(y[4], y[5])) | U(U(e4m3_pair(y[6], y[7])) << U(16)))


@register_jitable
def codes_e5m2(y, _point, _lo, _edges):
    """Return eight E5M2, by the hardware (sm_89 and newer)."""
    low = U(U(e5m2_pair(y[0], y[1])) | U(U(e5m2_pair(y[2], y[3])) << U(16)))
    return low, U(U(e5m2_pair(y[4], y[5])) | U(U(e5m2_pair(y[6], y[7])) << U(16)))


@register_jitable
def one_e4m3(y):
    """Return E4M3 of a finite number in integer arithmetic: for older hardware."""
    bits = bits32(y)
    size = U(bits & U(0x7FFFFFFF))
    normal = U(U(U(size + U(U(0x7FFFF) + U(U(size >> U(20)) & U(1)))) >> U(20)) - U(960))
    # Adding 2**14 leaves steps of 2**-9: subnormal codes are the low bits.
    low = U(bits32(F(abs(y) + F(16384.0))) - U(0x46800000))
    code = min(normal if size >= U(0x3C800000) else low, U(0x7E))
    return U(code | U(U(bits >> U(24)) & U(0x80)))


@register_jitable
def one_e5m2(y):
    """Return E5M2 of a finite number in integer arithmetic: for older hardware."""
    bits = bits32(y)
    size = U(bits & U(0x7FFFFFFF))
    normal = U(U(U(size + U(U(0xFFFFF) + U(U(size >> U(21)) & U(1)))) >> U(21)) - U(448))
    # Adding 2**7 leaves steps of 2**-16: subnormal codes are the low bits.
    low = U(bits32(F(abs(y) + F(128.0))) - U(0x43000000))
    code = min(normal if size >= U(0x38800000) else low, U(0x7B))
    return U(code | U(U(bits >> U(24)) & U(0x80)))


@register_jitable
def four_bytes(a, b, c, d):
    """Return the low bytes of four words as one."""
    return picked(picked(a, b, U(0x40)), picked(c, d, U(0x40)), U(0x5410))


@register_jitable
def codes_e4m3_soft(y, _point, _lo, _edges):
    """Return eight E4M3, on any hardware."""
    return (
        four_bytes(one_e4m3(y[0]), one_e4m3(y[1]), one_e4m3(y[2]), one_e4m3(y[3])),
        four_bytes(one_e4m3(y[4]), one_e4m3(y[5]), one_e4m3(y[6]), one_e4m3(y[7])),
    )


@register_jitable
def codes_e5m2_soft(y, _point, _lo, _edges):
    """Return eight E5M2, on any hardware."""
    return (
        four_bytes(one_e5m2(y[0]), one_e5m2(y[1]), one_e5m2(y[2]), one_e5m2(y[3])),
        four_bytes(one_e5m2(y[4]), one_e5m2(y[5]), one_e5m2(y[6]), one_e5m2(y[7])),
    )


@register_jitable
def codes_e2m1(y, _point, _lo, _edges):
    """Return eight E2M1, by the hardware (sm_100a and sm_120a)."""
    return e2m1_eight(y), U(0)


@register_jitable
def one_e2m1(y):
    """Return E2M1 of a finite number, on any hardware.

    Three exact multiply-adds round |y| to steps of 1/2, 1 and 2, each offset so that the right code
    is the smallest of them; all have one exponent, so the order of their bits is theirs. The bits
    of that exponent stay in the upper half.
    """
    size = abs(y)
    halves = bits32(fused(size, F(2.0), F(2.0**23)))
    ones = bits32(F(size + F(2.0**23 + 2)))
    twos = bits32(fused(size, F(0.5), F(2.0**23 + 4)))
    least = min(halves, ones, twos, U(0x4B000007))
    return U(least | U(U(bits32(y) >> U(28)) & U(8)))


@register_jitable
def two_e2m1(a, b):
    """Return two E2M1 as the low byte of a word."""
    return U(one_e2m1(a) + U(one_e2m1(b) << U(4)))


@register_jitable
def codes_e2m1_soft(y, _point, _lo, _edges):
    """Return eight E2M1, on any hardware."""
    low = four_bytes(
        two_e2m1(y[0], y[1]), two_e2m1(y[2], y[3]), two_e2m1(y[4], y[5]), two_e2m1(y[6], y[7])
    )
    return low, U(0)


def _index_of(bits):
    """Return the function that counts the edges below a number, of 2**bits - 1 ascending ones.

    The edges of the first two halvings are loaded once for all eight numbers, and chosen from.
    """
    half, quarter = 1 << (bits - 1), 1 << (bits - 2)

    @register_jitable
    def index(y, edges):
        lower, middle, upper = edges[quarter - 1], edges[half - 1], edges[half + quarter - 1]
        is_upper = middle < y
        place = U(half) if is_upper else U(0)
        place = U(place + U(quarter)) if (upper if is_upper else lower) < y else place
        step = U(quarter >> 1)
        for _ in range(bits - 2):
            place = U(place + step) if edges[U(place + U(step - U(1)))] < y else place
            step = U(step >> U(1))
        return place

    return index


index_8, index_4, index_2 = _index_of(8), _index_of(4), _index_of(2)


@register_jitable
def codes_lookup_8(y, _point, _lo, e):
    """Return eight indices of 8 bits."""
    return (
        four_bytes(index_8(y[0], e), index_8(y[1], e), index_8(y[2], e), index_8(y[3], e)),
        four_bytes(index_8(y[4], e), index_8(y[5], e), index_8(y[6], e), index_8(y[7], e)),
    )


@register_jitable
def two_indices(a, b, edges):
    """Return two indices of 4 bits as a byte."""
    return U(index_4(a, edges) + U(index_4(b, edges) << U(4)))


@register_jitable
def codes_lookup_4(y, _point, _lo, e):
    """Return eight indices of 4 bits."""
    low = two_indices(y[0], y[1], e), two_indices(y[2], y[3], e)
    return four_bytes(*low, two_indices(y[4], y[5], e), two_indices(y[6], y[7], e)), U(0)


@register_jitable
def codes_lookup_2(y, _point, _lo, e):
    """Return eight indices of 2 bits."""
    word = U(0)
    for k in range(8):
        word = U(word | U(index_2(y[k], e) << U(2 * k)))
    return word, U(0)


CODES = {
    "s8": codes_s8,
    "u8": codes_u8,
    "s4": codes_s4,
    "u4": codes_u4,
    "s2": codes_s2,
    "u2": codes_u2,
    "E4M3": codes_e4m3,
    "E5M2": codes_e5m2,
    "E2M1": codes_e2m1,
    "E4M3 soft": codes_e4m3_soft,
    "E5M2 soft": codes_e5m2_soft,
    "E2M1 soft": codes_e2m1_soft,
    "lookup 8": codes_lookup_8,
    "lookup 4": codes_lookup_4,
    "lookup 2": codes_lookup_2,
}


@register_jitable
def codes_one_by_one(x, begin, count, scale, point, edges, form, row, bits):
    """Return the codes of up to eight neighbours by the general arithmetic."""
    packed = uint64(0)
    mask = (int32(1) << bits) - int32(1)
    for k in range(count):
        code = code_of(number_at(x, begin + k), scale, point, edges, form, row)
        packed |= uint64(code & mask) << uint64(k * bits)
    return U(packed & uint64(0xFFFFFFFF)), U(packed >> uint64(32))
