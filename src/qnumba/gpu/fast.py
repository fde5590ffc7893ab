"""The fast kernels: contiguous rows, blocks that are whole groups of eight, aligned addresses.

A thread takes eight neighbours, which share a scale. Kernels are put together here from the parts
in ``eight``, one for each format that is used, and compiled when it is.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from numba import cuda, float32, int32, int64, uint32, uint64
from numba.extending import register_jitable

from qnumba.gpu.codes import CODES, SCALE_STORES, codes_one_by_one
from qnumba.gpu.eight import (
    DIVISIONS,
    GETS,
    INFINITE,
    LOADS,
    PUTS,
    SAVES,
    finite_magnitude,
    is_plain,
    largest_of,
    products,
    quotients,
)
from qnumba.gpu.numbers import NUMBERS
from qnumba.gpu.ptx import (
    bits32,
    divide,
    float_of,
    greatest,
    largest,
    multiply,
    number_at,
    raise_to,
    reciprocal,
    swap_lanes,
)

U, F = uint32, float32
TENSOR, ROW, GRID = "tensor", "row", "grid"  # which scale a group has: the one, or by its place


@register_jitable
def group_index():
    """Return the number of this thread in the launch."""
    return U(U(cuda.blockIdx.x) * U(cuda.blockDim.x) + U(cuda.threadIdx.x))


@register_jitable
def warp_largest(bits, lanes):
    """Return the largest of ``lanes`` neighbouring lanes: a constant, and a power of two."""
    distance = U(1)
    while distance < lanes:
        bits = max(bits, swap_lanes(bits, distance))
        distance = U(distance << U(1))
    return bits


@register_jitable
def divided(number, divisor):
    """Return number // n below 2**31, by what ``routes.divisor`` made of n."""
    return U((uint64(number) * uint64(divisor[0])) >> uint64(divisor[1]))


@register_jitable
def place_in_tensor(_runs):
    """Return row, column and scale of this thread where there is one scale."""
    return U(0), group_index(), U(0)


@register_jitable
def place_in_row(runs):
    """Return row, column and scale of this thread in one row of blocks."""
    col = group_index()
    return U(0), col, divided(col, (runs[4], runs[5]))


@register_jitable
def place_in_grid(runs):
    """Return row, column and scale of this thread; columns are counted in groups.

    ``runs`` is made by ``routes.Runs.numbers``. The threads of a block stand 2**across along a row;
    blocks of threads stand ``grid_cols`` so.
    """
    _, _, across, grid_cols, by_cols, cols_shift, by_rows, rows_shift, by_grid, grid_shift = runs[
        :10
    ]
    thread, block = U(cuda.threadIdx.x), U(cuda.blockIdx.x)
    width = U(U(1) << across)
    above = divided(block, (by_grid, grid_shift))
    col = U(U(block - U(above * grid_cols)) * width + U(thread & U(width - U(1))))
    row = U(above * U(U(cuda.blockDim.x) >> across) + U(thread >> across))
    line = divided(row, (by_rows, rows_shift))
    return row, col, U(U(line * runs[10]) + divided(col, (by_cols, cols_shift)))


PLACES = {TENSOR: place_in_tensor, ROW: place_in_row, GRID: place_in_grid}


class Coding(NamedTuple):
    """What a kernel that encodes is compiled for, besides dtypes; all are constants in it."""

    code: str
    bits: int
    lo: int
    two_level: bool
    affine: bool
    away: bool


@cache
def quantize_blocks(dtype, coding, scale_store, rule, power, lanes, groups):  # noqa: C901 - of constants
    """Return the kernel that calibrates and encodes blocks along contiguous memory in one pass.

    A thread takes ``groups`` times eight numbers; ``lanes`` threads share a block, a power of two.
    """
    load, store = LOADS[dtype], SCALE_STORES[scale_store]
    inverse_of, quotients = DIVISIONS[scale_store == "UE8M0"]
    encode, put, bits = CODES[coding.code], PUTS[coding.bits], coding.bits
    lo, two_level, away, last_lane = coding.lo, coding.two_level, coding.away, lanes - 1

    @register_jitable
    def one_by_one(x, words, group, scale, form, row, edges):
        begin = int64(group) * 8
        low, high = codes_one_by_one(x, begin, 8, scale, int64(0), edges, form, row, bits)
        put(words, group, low, high)

    def kernel(x, words, count, scales, global_scale, edges, flag, top, form, row):
        thread = group_index()
        live = thread < count
        group = U(thread * U(groups)) if live else U(0)
        v = load(x, group)
        most = bits32(largest_of(v))
        w = v
        if groups == 2:  # noqa: PLR2004 - a constant of this kernel
            w = load(x, U(group + U(1)))
            most = bits32(largest(float_of(most), largest_of(w)))
        amax = most
        if most >= U(INFINITE):
            amax = finite_magnitude(x, int64(group) * 8, 8 * groups)
            if live:
                flag[0] = 1
        amax = warp_largest(amax, lanes)
        statistic = float_of(amax)
        raw = divide(statistic, top)
        if two_level:
            over = global_scale[0]
            stored = store(divide(raw, over), rule, statistic, power)
            scale = multiply(over, stored)
        else:
            stored = store(raw, rule, statistic, power)
            scale = stored
        if live:
            if U(thread & U(last_lane)) == U(0):
                scales[U(thread // U(lanes))] = stored
            if most < U(INFINITE) and is_plain(most, scale) and not away:
                inverse = inverse_of(scale)
                low, high = encode(quotients(v, scale, inverse), int32(0), int32(lo), edges)
                put(words, group, low, high)
                if groups == 2:  # noqa: PLR2004 - a constant of this kernel
                    low, high = encode(quotients(w, scale, inverse), int32(0), int32(lo), edges)
                    put(words, U(group + U(1)), low, high)
            else:
                one_by_one(x, words, group, scale, form, row, edges)
                if groups == 2:  # noqa: PLR2004 - a constant of this kernel
                    one_by_one(x, words, U(group + U(1)), scale, form, row, edges)

    return kernel


@cache
def encode_runs(dtype, coding, layout):
    """Return the kernel that encodes with scales that are there already."""
    load, place_of = LOADS[dtype], PLACES[layout]
    encode, put, bits = CODES[coding.code], PUTS[coding.bits], coding.bits
    lo, two_level, affine, away = coding.lo, coding.two_level, coding.affine, coding.away

    def kernel(x, words, runs, scales, global_scale, points, edges, flag, form, row):
        line, col, index = place_of(runs)
        if line >= runs[0] or col >= runs[1]:
            return
        group = U(line * runs[1] + col)
        v = load(x, group)
        most = bits32(largest_of(v))
        scale = scales[index]
        if two_level:
            scale = multiply(global_scale[0], scale)
        point = points[index] if affine else int32(0)
        if most >= U(INFINITE):
            flag[0] = 1
        if most < U(INFINITE) and is_plain(most, scale) and not away:
            inverse = reciprocal(scale)
            low, high = encode(quotients(v, scale, inverse), point, int32(lo), edges)
        else:
            begin = int64(group) * 8
            low, high = codes_one_by_one(x, begin, 8, scale, int64(point), edges, form, row, bits)
        put(words, group, low, high)

    return kernel


@cache
def decode_runs(dtype, number, bits, layout, affine, two_level):
    """Return the kernel that decodes."""
    numbers, get, save, place_of = NUMBERS[number], GETS[bits], SAVES[dtype], PLACES[layout]

    def kernel(words, out, runs, scales, global_scale, points, table):
        line, col, index = place_of(runs)
        if line >= runs[0] or col >= runs[1]:
            return
        group = U(line * runs[1] + col)
        scale = scales[index]
        if two_level:
            scale = multiply(global_scale[0], scale)
        point = F(points[index]) if affine else F(0.0)
        low, high = get(words, group)
        save(out, group, products(numbers(low, high, point, table), scale))

    return kernel


@register_jitable
def two_ends(x, v, begin, affine, flag):
    """Return the bits of the greatest number and of the least, negated, of eight with 0."""
    most = bits32(largest_of(v))
    if most >= U(INFINITE):
        flag[0] = 1
        hi, lo = U(0), U(0)
        for k in range(8):
            number = number_at(x, begin + k)
            size = U(bits32(number) & U(0x7FFFFFFF))
            if size < U(INFINITE):
                if affine and number < F(0.0):
                    lo = max(lo, size)
                else:
                    hi = max(hi, size)
        return hi, lo
    if affine:
        a = greatest(greatest(v[0], v[1]), greatest(v[2], v[3]))
        b = greatest(greatest(v[4], v[5]), greatest(v[6], v[7]))
        c = greatest(greatest(F(-v[0]), F(-v[1])), greatest(F(-v[2]), F(-v[3])))
        d = greatest(greatest(F(-v[4]), F(-v[5])), greatest(F(-v[6]), F(-v[7])))
        hi, lo = greatest(greatest(a, b), F(0.0)), greatest(greatest(c, d), F(0.0))
        return bits32(hi), bits32(lo)
    return most, U(0)


@cache
def range_tensor(dtype):
    """Return the kernel that finds the range of an array: two keys, flag; all 0 before."""
    load = LOADS[dtype]

    def kernel(x, count, affine, keys, flag):
        group = group_index()
        stride = U(U(cuda.gridDim.x) * U(cuda.blockDim.x))
        hi, lo = U(0), U(0)
        while group < count:
            second = U(group + stride)
            v = load(x, group)
            w = load(x, second if second < count else group)
            a, b = two_ends(x, v, int64(group) * 8, affine, flag)
            c, d = two_ends(x, w, int64(second if second < count else group) * 8, affine, flag)
            hi, lo = max(hi, a, c), max(lo, b, d)
            group = U(second + stride)
        hi, lo = warp_largest(hi, U(32)), warp_largest(lo, U(32))
        if U(U(cuda.threadIdx.x) & U(31)) == U(0):
            raise_to(keys, 0, hi)
            if affine:
                raise_to(keys, 1, lo)

    return kernel


@cache
def range_runs(dtype, layout, lanes):
    """Return the kernel that finds the range of every block: two keys each, all 0 before."""
    load, place_of, last_lane = LOADS[dtype], PLACES[layout], lanes - 1

    def kernel(x, runs, affine, keys, flag):
        line, col, index = place_of(runs)
        live = line < runs[0] and col < runs[1]
        hi, lo = U(0), U(0)
        if live:
            group = U(line * runs[1] + col)
            hi, lo = two_ends(x, load(x, group), int64(group) * 8, affine, flag)
        hi = warp_largest(hi, lanes)
        if affine:
            lo = warp_largest(lo, lanes)
        if live and U(U(cuda.threadIdx.x) & U(last_lane)) == U(0):
            raise_to(keys, int64(index) * 2, hi)
            if affine:
                raise_to(keys, int64(index) * 2 + 1, lo)

    return kernel


def settle(keys, first, second, count, affine):
    """Turn the keys of blocks into the numbers that the general kernels finish."""
    block = int64(group_index())
    if block < count:
        hi, lo = float_of(keys[2 * block]), float_of(keys[2 * block + 1])
        first[block] = -lo if affine else hi
        second[block] = hi
