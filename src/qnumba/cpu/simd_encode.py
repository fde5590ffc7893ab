"""Encoders of runs of values, in LLVM.

Functions take an array and an offset into it, never a slice: making one costs as much as a short
run; and many runs at once, as a call for each would cost as much again. Everything about a format
is a runtime argument, so that one compiled kernel serves all of a kind.
``x`` is of a compute type, float32 or float64; ``e`` holds float32 scales, ``y`` their inverses.
Each returns whether all ratios are finite; the codes of those that are not mean nothing.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from qnumba.cpu.simd import (
    FLOAT,
    I8,
    I32,
    I64,
    REALS,
    as_real,
    bits_of,
    data,
    prefetch,
    sweep,
    sweep_runs,
)
from qnumba.cpu.simd_ranges import Extreme, Finite

FEW_EDGES = 15  # of a table of 16

# --- encode runs of values from x[start] on to bytes out[to:], by the scales from `first` on


@intrinsic
def encode_int(_typing, x, start, runs, length, e, y, z, first, each, ahead, lo, hi, away, out, to):
    """Clamp to whole ends, round, then add the zero point in integers.

    ``z`` is None where zero points are 0. Added to 1.5 times the power of two whose last bit is
    worth 1, a number is rounded by the processor, and its integer is in the lowest bits.
    """
    real = REALS[x.dtype]
    has_points = z != types.none

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        numbers = (4, 5, 6) if has_points else (4, 5)
        beside = [data(context, builder, signature, args, k, 7) for k in numbers]
        lo, hi, away = args[10:13]
        target = data(context, builder, signature, args, 13, 14)
        finite = Finite(builder, real)

        def prepare(lanes, scale, inverse, point=None):
            point = point or lanes.fill(I32, 0)
            ends = [builder.sub(lanes.splat(end), point) for end in (lo, hi)]
            ends = [builder.sitofp(end, lanes.of(real.kind)) for end in ends]
            point = builder.trunc(point, lanes.of(I8))
            return as_real(builder, lanes, real, scale), inverse, *ends, point

        def body(lanes, index, scale, inverse, low, high, point):
            if lanes.width > 1:
                prefetch(builder, source, builder.add(index, args[9]))
            ratio = lanes.quotient(real, lanes.load(source, index), scale, inverse)
            finite.add(lanes, ratio)
            steps = rounded(lanes, lanes.clamp(ratio, low, high))
            steps = builder.fadd(steps, lanes.fill(real.kind, 1.5 * 2**real.mantissa))
            steps = builder.trunc(builder.bitcast(steps, lanes.of(real.bits)), lanes.of(I8))
            lanes.store(builder.add(steps, point) if has_points else steps, target, index)

        def to_even(_lanes, value):
            return value

        def from_zero(lanes, value):
            push = lanes.call("copysign", lanes.fill(real.kind, real.almost_half), value)
            return lanes.call("trunc", builder.fadd(value, push))

        with builder.if_else(away) as branches:
            for branch, rounded in zip(branches, (from_zero, to_even), strict=True):  # noqa: B007 - body
                with branch:
                    sweep_runs(builder, *args[2:4], args[8], beside, (real.lanes, 1), body, prepare)
        return finite.value()

    i = types.intp
    flag, number = types.boolean, types.int32
    return flag(x, i, i, i, e, y, z, i, flag, i, number, number, flag, out, i), emit


@intrinsic
def encode_float(
    _typing,
    x,
    start,
    runs,
    length,
    e,
    y,
    first,
    each,
    ahead,
    mantissa,
    smallest,
    top,
    width,
    out,
    to,
):
    """Minifloats, ties to even, saturating at ``top``: any width and mantissa, in one formula.

    Adding a power of two C leaves exactly the mantissa bits of the format below the point of |x|,
    so the processor's own rounding is the one rounding; below ``smallest``, the smallest normal
    number, C stays where it is, which rounds subnormals on the same line. The lowest byte of C is
    0, so the lowest byte of the sum counts steps.
    """
    real = REALS[x.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        scales = [data(context, builder, signature, args, k, 6) for k in (4, 5)]
        mantissa, smallest, top, width = args[9:13]
        target = data(context, builder, signature, args, 13, 14)
        bits = real.bits
        one = ir.Constant(bits, 1)
        mantissa, width = builder.zext(mantissa, I64), builder.zext(width, I64)
        mantissa, width = (builder.trunc(v, bits) if bits == I32 else v for v in (mantissa, width))
        smallest, top = (bits_of(builder, real, number) for number in (smallest, top))
        drop = builder.sub(ir.Constant(bits, real.mantissa), mantissa)
        lift = builder.uitofp(builder.shl(one, drop), real.kind)
        sign_at = builder.sub(width, one)
        sign_from = builder.sub(ir.Constant(bits, bits.width), width)
        sign_mask = builder.shl(one, sign_at)
        finite = Finite(builder, real)

        def prepare(lanes, scale, inverse):
            return as_real(builder, lanes, real, scale), inverse

        def body(lanes, index, scale, inverse):
            if lanes.width > 1:
                prefetch(builder, source, builder.add(index, args[8]))
            value = lanes.load(source, index)
            ratio = lanes.quotient(real, value, scale, inverse)
            finite.add(lanes, ratio)
            size = builder.bitcast(ratio, lanes.of(bits))
            size = builder.and_(size, lanes.fill(bits, real.magnitude_mask))
            size = lanes.call("umin", size, lanes.splat(top))
            power = builder.and_(size, lanes.fill(bits, real.exponent_mask))
            power = lanes.call("umax", power, lanes.splat(smallest))
            base = builder.lshr(builder.sub(power, lanes.splat(smallest)), lanes.splat(drop))
            power, size = (builder.bitcast(v, lanes.of(real.kind)) for v in (power, size))
            total = lanes.multiply_add(power, lanes.splat(lift), size)
            sign = builder.lshr(builder.bitcast(value, lanes.of(bits)), lanes.splat(sign_from))
            sign = builder.and_(sign, lanes.splat(sign_mask))
            code = builder.add(builder.bitcast(total, lanes.of(bits)), base)
            code = builder.or_(code, sign)
            lanes.store(builder.trunc(code, lanes.of(I8)), target, index)

        sweep_runs(builder, *args[2:4], args[7], scales, (real.lanes, 1), body, prepare)
        return finite.value()

    i = types.intp
    flag, number, float64 = types.boolean, types.int32, types.float64
    return flag(x, i, i, i, e, y, i, flag, i, number, float64, float64, number, out, i), emit


def _search(lanes, ratio, edges):
    """Return how many of 15 edges in order a ratio is above: four steps, by selects."""
    builder = lanes.builder
    code = lanes.fill(I8, 0)
    while edges:
        half = len(edges) // 2
        is_above = builder.fcmp_ordered(">", ratio, edges[half])
        bit = builder.select(is_above, lanes.fill(I8, half + 1), lanes.fill(I8, 0))
        code = builder.or_(code, bit)
        edges = [
            builder.select(is_above, high, low)
            for low, high in zip(edges[:half], edges[half + 1 :], strict=True)
        ]
    return code


def _count(lanes, ratio, edge_at, edges):
    """Return how many of any number of edges a ratio is above."""
    builder = lanes.builder
    passed = cgutils.alloca_once(builder, lanes.of(I8))
    builder.store(lanes.fill(I8, 0), passed)
    with cgutils.for_range(builder, edges) as loop:
        is_above = builder.fcmp_ordered(">", ratio, lanes.splat(edge_at(loop.index)))
        is_above = builder.zext(is_above, lanes.of(I8))
        builder.store(builder.add(builder.load(passed), is_above), passed)
    return builder.load(passed)


@intrinsic
def encode_lookup(_typing, x, start, runs, length, e, y, first, each, ahead, edges, out, to):
    """Count how many edges, 15 or more, each ratio is above: its index. NaN: 0."""
    real = REALS[x.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        scales = [data(context, builder, signature, args, k, 6) for k in (4, 5)]
        array = context.make_array(signature.args[9])(context, builder, args[9])
        size = builder.extract_value(array.shape, 0)
        target = data(context, builder, signature, args, 10, 11)

        def edge_at(index):
            return builder.load(builder.gep(array.data, [index]))

        finite = Finite(builder, real)
        few = [edge_at(ir.Constant(I64, k)) for k in range(FEW_EDGES)]

        def body(lanes, index, scale, inverse):
            if lanes.width > 1:
                prefetch(builder, source, builder.add(index, args[8]))
            ratio = lanes.quotient(real, lanes.load(source, index), scale, inverse)
            finite.add(lanes, ratio)
            lanes.store(place_of(lanes, ratio), target, index)

        def prepare(lanes, scale, inverse):
            return as_real(builder, lanes, real, scale), inverse

        def among_few(lanes, ratio):
            return _search(lanes, ratio, [lanes.splat(edge) for edge in few])

        def among_many(lanes, ratio):
            return _count(lanes, ratio, edge_at, size)

        is_few = builder.icmp_signed("==", size, ir.Constant(I64, FEW_EDGES))
        with builder.if_else(is_few) as branches:
            for branch, place_of in zip(branches, (among_few, among_many), strict=True):  # noqa: B007 - body
                with branch:
                    sweep_runs(builder, *args[2:4], args[7], scales, (real.lanes, 1), body, prepare)
        return finite.value()

    i, flag = types.intp, types.boolean
    return flag(x, i, i, i, e, y, i, flag, i, edges, out, i), emit


# --- scales, before values are divided by them


@intrinsic
def inverses(_typing, e, count, y):
    """Write 1 / e[:count] to y, 0 for 0; return the largest of e and of y. NaN is passed over."""

    def emit(context, builder, signature, args):
        source, target = (
            context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 2)
        )
        tops = [Extreme(builder, REALS[types.float32], ">") for _ in range(2)]

        def body(lanes, index):
            scale = lanes.load(source, index)
            inverse = builder.fdiv(lanes.fill(FLOAT, 1), scale)
            is_zero = builder.fcmp_ordered("==", scale, lanes.fill(FLOAT, 0))
            inverse = builder.select(is_zero, scale, inverse)
            lanes.store(inverse, target, index)
            for top, numbers in zip(tops, (scale, inverse), strict=True):
                top.add(lanes.width, numbers)

        sweep(builder, args[1], (16, 1), body)
        return context.make_tuple(builder, signature.return_type, [top.value() for top in tops])

    return types.UniTuple(types.float32, 2)(e, types.intp, y), emit


@intrinsic
def divide(_typing, x, start, runs, length, e, first, each, out):
    """Write x / e to out, zeros for scales of 0; ratios beyond float32 end at its largest."""

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        scales = [data(context, builder, signature, args, 4, 5)]
        target = context.make_array(signature.args[7])(context, builder, args[7]).data
        finite = float(np.finfo(np.float32).max)

        def body(lanes, index, scale):
            is_zero = builder.fcmp_ordered("==", scale, lanes.fill(FLOAT, 0))
            scale = builder.select(is_zero, lanes.fill(FLOAT, float("inf")), scale)
            ratio = builder.fdiv(lanes.load(source, index), scale)
            ends = [lanes.fill(FLOAT, end) for end in (-finite, finite)]
            lanes.store(lanes.clamp(ratio, *ends), target, index)

        sweep_runs(builder, args[2], args[3], args[6], scales, (16, 1), body)
        return context.get_dummy_value()

    i, flag = types.intp, types.boolean
    return types.void(x, i, i, i, e, i, flag, out), emit
