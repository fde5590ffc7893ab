"""The fast kernels: contiguous rows, blocks that are whole groups of eight, aligned addresses.

A thread takes eight neighbours, which share a scale. Kernels are put together here from the parts
in ``eight``, one for each format that is used, and compiled when it is.
"""

from __future__ import annotations

from functools import cache

from numba import cuda, float32, int32, int64, uint32
from numba.extending import register_jitable

from qnumba.gpu.codes import CODES, SCALE_STORES, codes_one_by_one
from qnumba.gpu.eight import (
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
    shifted,
)
from qnumba.gpu.numbers import NUMBERS
from qnumba.gpu.ptx import (
    bits32,
    divide,
    float_of,
    greatest,
    multiply,
    number_at,
    raise_to,
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
    """Return the largest of ``lanes`` neighbouring lanes, a power of two."""
    distance = U(1)
    while distance < lanes:
        bits = max(bits, swap_lanes(bits, distance))
        distance = U(distance << U(1))
    return bits


@register_jitable
def place_of(across, grid_cols, block_cols, block_rows, scale_cols):
    """Return row, column and scale of this thread; columns are counted in groups.

    The threads of a block stand 2**across along a row; blocks of threads stand ``grid_cols`` so.
    """
    thread, block = U(cuda.threadIdx.x), U(cuda.blockIdx.x)
    width = U(U(1) << across)
    above = U(block // grid_cols)
    col = U(U(block - U(above * grid_cols)) * width + U(thread & U(width - U(1))))
    row = U(above * U(U(cuda.blockDim.x) >> across) + U(thread >> across))
    return row, col, U(U(row // block_rows) * scale_cols + U(col // block_cols))


@cache
def quantize_blocks(dtype, code, bits, scale_store, groups):  # noqa: C901 - no branch at run time
    """Return the kernel that calibrates and encodes blocks along contiguous memory in one pass.

    A thread takes ``groups`` times eight numbers; ``lanes`` threads share a block.
    """
    load, encode, put, store = LOADS[dtype], CODES[code], PUTS[bits], SCALE_STORES[scale_store]
    divided = shifted if scale_store == "UE8M0" else quotients

    @register_jitable
    def one_group(x, words, v, group, most, scale, form, row, edges, away):
        plain = most < U(INFINITE) and is_plain(most, scale) and not away
        if plain:
            inverse = divide(F(1.0), scale)
            low, high = encode(divided(v, scale, inverse), int32(0), int32(form[3]))
        else:
            begin = int64(group) * 8
            low, high = codes_one_by_one(x, begin, 8, scale, int64(0), edges, form, row, bits)
        put(words, group, low, high)

    def kernel(
        x, words, count, scales, global_scale, edges, flag, lanes, top, rule, power, form, row
    ):
        thread = group_index()
        live = thread < count
        group = U(thread * U(groups)) if live else U(0)
        v = load(x, group)
        most = bits32(largest_of(v))
        w, other = v, most
        if groups == 2:  # noqa: PLR2004 - a constant of this kernel
            w = load(x, U(group + U(1)))
            other = bits32(largest_of(w))
        seen = max(most, other)
        amax = seen
        if seen >= U(INFINITE):
            amax = finite_magnitude(x, int64(group) * 8, 8 * groups)
            if live:
                flag[0] = 1
        amax = warp_largest(amax, lanes)
        statistic = float_of(amax)
        raw = divide(statistic, top)
        scale = F(0.0)
        if form[1]:
            over = global_scale[0]
            raw = divide(raw, over)
            stored = store(raw, rule, statistic, power)
            scale = multiply(over, stored)
        else:
            stored = store(raw, rule, statistic, power)
            scale = stored
        if live:
            if U(thread & U(lanes - U(1))) == U(0):
                scales[U(thread // lanes)] = stored
            one_group(x, words, v, group, most, scale, form, row, edges, form[5])
            if groups == 2:  # noqa: PLR2004 - a constant of this kernel
                after = U(group + U(1))
                one_group(x, words, w, after, other, scale, form, row, edges, form[5])

    return kernel


@cache
def encode_runs(dtype, code, bits, layout):
    """Return the kernel that encodes with scales that are there already."""
    load, encode, put = LOADS[dtype], CODES[code], PUTS[bits]

    def kernel(
        x, words, rows, cols, across, grid_cols, block_cols, block_rows, scale_cols,
        scales, global_scale,
        points, edges, flag, form, row,
    ):  # fmt: skip
        line, col, index = place_of(across, grid_cols, block_cols, block_rows, scale_cols)
        if line >= rows or col >= cols:
            return
        if layout == TENSOR:
            index = U(0)
        group = U(line * cols + col)
        v = load(x, group)
        most = bits32(largest_of(v))
        scale = scales[index]
        if form[1]:
            scale = multiply(global_scale[0], scale)
        point = points[index] if form[2] else int32(0)
        if most >= U(INFINITE):
            flag[0] = 1
        if most < U(INFINITE) and is_plain(most, scale) and not form[5]:
            inverse = divide(F(1.0), scale)
            low, high = encode(quotients(v, scale, inverse), point, int32(form[3]))
        else:
            begin = int64(group) * 8
            low, high = codes_one_by_one(x, begin, 8, scale, int64(point), edges, form, row, bits)
        put(words, group, low, high)

    return kernel


@cache
def decode_runs(dtype, number, bits, layout):
    """Return the kernel that decodes."""
    numbers, get, save = NUMBERS[number], GETS[bits], SAVES[dtype]

    def kernel(
        words, out, rows, cols, across, grid_cols, block_cols, block_rows, scale_cols,
        scales, global_scale,
        points, table, affine, two_level,
    ):  # fmt: skip
        line, col, index = place_of(across, grid_cols, block_cols, block_rows, scale_cols)
        if line >= rows or col >= cols:
            return
        if layout == TENSOR:
            index = U(0)
        group = U(line * cols + col)
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
def range_runs(dtype):
    """Return the kernel that finds the range of every block: two keys each, all 0 before."""
    load = LOADS[dtype]

    def kernel(
        x,
        rows,
        cols,
        across,
        grid_cols,
        block_cols,
        block_rows,
        scale_cols,
        lanes,
        affine,
        keys,
        flag,
    ):
        line, col, index = place_of(across, grid_cols, block_cols, block_rows, scale_cols)
        live = line < rows and col < cols
        hi, lo = U(0), U(0)
        if live:
            group = U(line * cols + col)
            hi, lo = two_ends(x, load(x, group), int64(group) * 8, affine, flag)
        hi = warp_largest(hi, lanes)
        if affine:
            lo = warp_largest(lo, lanes)
        if live and U(U(cuda.threadIdx.x) & U(lanes - U(1))) == U(0):
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
