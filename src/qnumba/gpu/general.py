"""The kernels that are right for everything: any block, any packed axis, any alignment, float64.

A plan reaches them as tuples of int64 (see ``launch.Geometry``). Every kernel is one loop over
places; the arithmetic is in ``scalar``.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32, float64, int32, int64, uint32
from numba.extending import register_jitable

from qnumba.gpu.places import (
    corner_of,
    element_of,
    field_of,
    first_in_word,
    put_word,
    scale_index,
    thread_index,
)
from qnumba.gpu.ptx import float_of, lane_value64, multiply, number_at, put_product, swap_lanes64
from qnumba.gpu.scalar import (
    LOOKUP,
    MINIFLOAT,
    in_type,
    int_code,
    int_number,
    is_finite,
    lookup_code,
    minifloat_code,
    minifloat_number,
    power_scale,
    ratio_in_type,
    store_scale,
)

CHUNK = 65536  # elements of a block that one warp reduces, in the order absmean defines
LANES = 256
AMAX, MINMAX, MEAN = 0, 1, 2
_WHOLE = 2.0**51  # from here on rounding by addition would be off
_LARGEST = float(np.finfo(np.float32).max)


def clear(numbers, count):
    """Set int32 numbers to 0."""
    place = thread_index()
    if place < count:
        numbers[place] = 0


def statistics(x, geometry, tasks, chunks, method, first, second, flag):
    """Reduce every chunk of every block, one warp each.

    AMAX: ``first`` is the largest magnitude. MINMAX: the ends of the range, with 0. MEAN: the sum
    of magnitudes and the count, both over finite numbers.
    """
    lane = int64(cuda.threadIdx.x) & 31
    task = thread_index() >> 5
    stride = int64(cuda.gridDim.x) * int64(cuda.blockDim.x) >> 5
    while task < tasks:
        block = task // chunks
        starts, reach = corner_of(block, geometry)
        begin = (task - block * chunks) * CHUNK
        size = reach[0] * reach[1] * reach[2] * reach[3] * reach[4] * reach[5]
        end = min(begin + CHUNK, size)
        if method == MEAN:
            a, b, seen = mean_of(x, begin, end, lane, starts, reach, geometry)
        else:
            a, b, seen = range_of(x, begin, end, lane, starts, reach, geometry)
        if method == AMAX:
            a = max(-a, b)
        if seen:
            flag[0] = 1
        if lane == 0:
            first[task] = a
            second[task] = b
        task += stride


@register_jitable
def range_of(x, begin, end, lane, starts, reach, geometry):
    """Return the ends of the range of a chunk with 0, and whether this lane saw another."""
    lo, hi, seen = 0.0, 0.0, False
    for place in range(begin + lane, end, 32):
        number = float64(number_at(x, element_of(place, starts, reach, geometry)))
        if is_finite(number):
            lo = min(lo, number)
            hi = max(hi, number)
        else:
            seen = True
    distance = 16
    while distance:
        lo = min(lo, swap_lanes64(lo, distance))
        hi = max(hi, swap_lanes64(hi, distance))
        distance >>= 1
    return lo, hi, seen


@register_jitable
def mean_of(x, begin, end, lane, starts, reach, geometry):
    """Return the sum of a chunk in the order of the contract: 256 lanes, halved; and the count.

    A thread holds the lanes ``lane + 32 * k``, so that lane j meets lane j + 128, 64, 32 in the
    same thread, and lane j + 16 and so on in another.
    """
    sums = cuda.local.array(8, float64)
    for k in range(8):
        sums[k] = 0.0
    count, seen = 0.0, False
    for base in range(begin, end, LANES):
        for k in range(8):
            place = base + lane + 32 * k
            if place < end:
                number = float64(number_at(x, element_of(place, starts, reach, geometry)))
                if is_finite(number):
                    sums[k] += abs(number)
                    count += 1.0
                else:
                    seen = True
    for k in range(4):
        sums[k] += sums[k + 4]
    total = (sums[0] + sums[2]) + (sums[1] + sums[3])
    distance = 16
    while distance:
        total += swap_lanes64(total, distance)
        count += swap_lanes64(count, distance)
        distance >>= 1
    return total, count, seen


def fold(first, second, to_first, to_second, groups, length, total, method):
    """Reduce ``length`` neighbours to one, a warp for each group; MEAN adds them in order."""
    lane = int64(cuda.threadIdx.x) & 31
    group = thread_index() >> 5
    stride = int64(cuda.gridDim.x) * int64(cuda.blockDim.x) >> 5
    while group < groups:
        begin = group * length
        end = min(begin + length, total)
        a, b = 0.0, 0.0
        for base in range(begin, end, 32):
            place = base + lane
            one = first[place] if place < end else 0.0
            two = second[place] if place < end else 0.0
            if method == MEAN:
                for k in range(32):
                    a += lane_value64(one, uint32(k))
                    b += lane_value64(two, uint32(k))
            else:
                a = min(a, one) if method == MINMAX else max(a, one)
                b = max(b, two)
        if method != MEAN:
            distance = 16
            while distance:
                other = swap_lanes64(a, distance)
                a = min(a, other) if method == MINMAX else max(a, other)
                b = max(b, swap_lanes64(b, distance))
                distance >>= 1
        if lane == 0:
            to_first[group] = a
            to_second[group] = b
        group += stride


@register_jitable
def global_of(peak, row, top, global_row, rule, wide):
    """Return the global scale of two levels, from the largest magnitude of the array."""
    raw = min(ratio_in_type(peak, top, wide), _LARGEST)
    share = ratio_in_type(raw, row[2], wide)
    stored = float64(store_scale(share, (23.0, -149.0, _LARGEST, 0.0), rule))
    return min(max(stored, global_row[0]), global_row[1])


def finish_global(peak, global_scale, row, top, global_row, rule):
    """Turn the largest magnitude of a float32 array into its global scale."""
    over = global_of(float64(float_of(peak[0])), row, top, global_row, rule, 0)
    global_scale[0] = float32(over)


def finish_symmetric(
    first,
    second,
    peak,
    scales,
    global_scale,
    blocks,
    row,
    top,
    global_row,
    power,
    rule,
    method,
    wide,
):
    """Turn statistics into scales as they are stored; ``peak`` is the largest of two levels."""
    block = thread_index()
    if block >= blocks:
        return
    statistic = first[block]
    if method == MEAN:
        statistic = in_type(statistic / max(second[block], 1.0), wide)
    if power[0]:
        scales[block] = power_scale(statistic, power[1], power[2], row[3], rule)
        return
    raw = ratio_in_type(statistic, top, wide)
    if global_row[0] != 0.0:
        over = global_of(peak[0], row, top, global_row, rule, wide)
        if block == 0:
            global_scale[0] = float32(over)
        raw = ratio_in_type(min(raw, _LARGEST), over, wide)
    scales[block] = store_scale(raw, row, rule)


def finish_affine(first, second, scales, points, blocks, row, ends, rule, wide):
    """Turn ranges into scales and zero points."""
    block = thread_index()
    if block >= blocks:
        return
    lo, hi = first[block], second[block]
    a, b = ends
    width = in_type(hi - lo, wide)
    if is_finite(width):
        raw = ratio_in_type(width, b - a, wide)
    else:
        raw = ratio_in_type(in_type(hi * 0.5 - lo * 0.5, wide), (b - a) * 0.5, wide)
    if hi == lo:
        raw = 1.0
    scale = store_scale(raw, row, rule)
    scales[block] = scale
    point = min(max(0.0, a), b)
    if scale != 0 and hi != lo:
        offset = in_type(a - ratio_in_type(lo, float64(scale), wide), wide)
        point = min(max(round_even(offset), a), b)
    points[block] = int32(point)


@register_jitable
def round_even(number):
    """Return a float64 rounded to the nearest integer, ties to even; infinities stay."""
    magic = 6755399441055744.0  # 1.5 * 2**52: adding it leaves no room for a fraction
    return (number + magic) - magic if abs(number) < _WHOLE else number


@register_jitable
def effective_scale(scales, global_scale, two_level, index):
    """Return the float32 that a code is multiplied by."""
    scale = scales[index]
    return multiply(global_scale[0], scale) if two_level else scale


@register_jitable
def code_of(x, scale, point, edges, form, row):
    """Return the code of one number; ``form`` is (kind, levels, affine, lo, hi, away, edges)."""
    kind, _, _, lo, hi, away, entries = form
    ratio = float64(x / scale) if scale != 0 else 0.0  # the division is in the compute type
    if kind == MINIFLOAT:
        return int32(minifloat_code(x, ratio, row))
    if kind == LOOKUP:
        return lookup_code(ratio, edges, entries) if scale != 0 else int32(0)
    return int_code(ratio, point, lo, hi, away)


def encode(
    x, words, count, scales, global_scale, points, edges, flag, geometry, packing, form, row
):
    """Write the codes of an array, a word to each thread."""
    word = thread_index()
    if word >= count:
        return
    _, _, after, _, word_bytes, code_bits = packing
    flat, elements = first_in_word(word, packing)
    mask = (int64(1) << code_bits) - 1
    bits, seen = int64(0), False
    for k in range(elements):
        number = number_at(x, flat)
        seen = seen or not is_finite(number)
        index = scale_index(flat, geometry)
        scale = effective_scale(scales, global_scale, form[1], index)
        point = int64(points[index]) if form[2] else int64(0)
        code = code_of(number, scale, point, edges, form, row)
        bits |= (int64(code) & mask) << (k * code_bits)
        flat += after
    if seen:
        flag[0] = 1
    put_word(words, word, bits, word_bytes)


def decode(words, out, count, scales, global_scale, points, table, geometry, packing, form, row):
    """Write the numbers of an array, one to each thread."""
    flat = thread_index()
    if flat >= count:
        return
    kind, two_level, affine, signed, value_bits, _, _ = form
    code = field_of(words, flat, packing, packing[5])
    code &= (int32(1) << int32(value_bits)) - 1
    index = scale_index(flat, geometry)
    scale = effective_scale(scales, global_scale, two_level, index)
    if kind == MINIFLOAT:
        number = minifloat_number(code, row)
    elif kind == LOOKUP:
        number = table[code]
    else:
        number = int_number(code, int32(value_bits), signed)
    if affine:
        number -= float32(points[index])
    put_product(out, flat, number, scale)


def widen(x, to, count, least, most, flag):
    """Copy integers into float64, and set the flag where one is outside given limits."""
    place = thread_index()
    if place < count:
        number = x[place]
        if number > most or number < least:
            flag[0] = 1
        to[place] = float64(number)


def pack(codes, words, count, packing):
    """Write words from codes of a byte each, a word to each thread."""
    word = thread_index()
    if word >= count:
        return
    _, _, after, _, word_bytes, code_bits = packing
    flat, elements = first_in_word(word, packing)
    mask = (int64(1) << code_bits) - 1
    bits = int64(0)
    for k in range(elements):
        bits |= (int64(codes[flat]) & mask) << (k * code_bits)
        flat += after
    put_word(words, word, bits, word_bytes)


def unpack(words, codes, count, packing, signed):
    """Write codes of a byte each from words; signed codes are extended."""
    flat = thread_index()
    if flat >= count:
        return
    code_bits = int32(packing[5])
    code = field_of(words, flat, packing, code_bits)
    if signed and code >> (code_bits - 1):
        code -= int32(1) << code_bits
    codes[flat] = np.uint8(code & 255)


def gather(source, to, count, item, extents, strides):
    """Copy a strided array of any alignment into a contiguous one, an element to each thread."""
    flat = thread_index()
    if flat >= count:
        return
    rest, offset = flat, int64(0)
    for axis in range(7, -1, -1):
        above = rest // extents[axis]
        offset += (rest - above * extents[axis]) * strides[axis]
        rest = above
    for byte in range(item):
        to[flat * item + byte] = source[offset + byte]
