"""Ranges and encoders of one run of values, in LLVM.

Functions take an array and an offset into it, never a slice: making one costs as much as a short
run. Everything about a format is a runtime argument, so that one compiled kernel serves them all.
``x`` is of a compute type, float32 or float64; ``e`` holds float32 scales.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from qnumba.cpu.simd import (
    I8,
    I32,
    I64,
    REALS,
    Lanes,
    as_real,
    bits_of,
    call,
    data,
    suffix,
    sweep,
    sweep_beside,
)

# --- ranges of x[start:start + count]


@intrinsic
def absmax(_typing, x, start, count):
    """Return the largest magnitude by its bits: infinity or NaN where there is one."""
    real = REALS[x.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        best = {
            width: cgutils.alloca_once_value(builder, Lanes(builder, width).fill(real.bits, 0))
            for width in (real.lanes, 1)
        }

        def body(lanes, index):
            bits = builder.bitcast(lanes.load(source, index), lanes.of(real.bits))
            size = builder.and_(bits, lanes.fill(real.bits, real.magnitude_mask))
            place = best[lanes.width]
            builder.store(lanes.call("umax", builder.load(place), size), place)

        sweep(builder, args[2], best, body)
        vector, rest = (builder.load(place) for place in best.values())
        top = call(builder, f"llvm.vector.reduce.umax.{suffix(vector.type)}", real.bits, vector)
        return builder.bitcast(Lanes(builder, 1).call("umax", top, rest), real.kind)

    return x.dtype(x, types.intp, types.intp), emit


@intrinsic
def extremes(_typing, x, start, count):
    """Return the least and the greatest of the values and 0. NaN is passed over."""
    real = REALS[x.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        ends = [
            {
                width: cgutils.alloca_once_value(builder, Lanes(builder, width).fill(real.kind, 0))
                for width in (real.lanes, 1)
            }
            for _ in "<>"
        ]

        def keep(relation, value, place):
            best = builder.load(place)
            wins = builder.fcmp_ordered(relation, value, best)
            builder.store(builder.select(wins, value, best), place)

        def body(lanes, index):
            value = lanes.load(source, index)
            for relation, best in zip("<>", ends, strict=True):
                keep(relation, value, best[lanes.width])

        sweep(builder, args[2], ends[0], body)
        for relation, name, best in zip("<>", ("fmin", "fmax"), ends, strict=True):
            vector = builder.load(best[real.lanes])
            reduce = f"llvm.vector.reduce.{name}.{suffix(vector.type)}"
            keep(relation, call(builder, reduce, real.kind, vector), best[1])
        found = [builder.load(best[1]) for best in ends]
        return context.make_tuple(builder, signature.return_type, found)

    return types.UniTuple(x.dtype, 2)(x, types.intp, types.intp), emit


# --- encode x[start:start + count] to bytes out[to:], by the scales (and zero points) from `first`


@intrinsic
def encode_int(_typing, x, start, count, e, z, first, each, lo, hi, away, out, to):
    """Clamp to whole ends, round, then add the zero point in integers. NaN: the zero point."""
    real = REALS[x.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        beside = [data(context, builder, signature, args, k, 5) for k in (3, 4)]
        lo, hi, away = args[7:10]
        target = data(context, builder, signature, args, 10, 11)

        def body(lanes, index, scale, point):
            kind, whole = lanes.of(real.kind), lanes.of(I32)
            ends = [builder.sitofp(builder.sub(lanes.splat(end), point), kind) for end in (lo, hi)]
            ratio = builder.fdiv(lanes.load(source, index), as_real(builder, lanes, real, scale))
            steps = builder.fptosi(rounded(lanes, lanes.clamp(ratio, *ends)), whole)
            is_number = builder.fcmp_ordered("==", ratio, ratio)
            steps = builder.select(is_number, steps, lanes.fill(I32, 0))
            lanes.store(builder.trunc(builder.add(steps, point), lanes.of(I8)), target, index)

        def to_even(lanes, value):
            return lanes.call("rint", value)

        def from_zero(lanes, value):
            push = lanes.call("copysign", lanes.fill(real.kind, real.almost_half), value)
            return builder.fadd(value, push)

        with builder.if_else(away) as branches:
            for branch, rounded in zip(branches, (from_zero, to_even), strict=True):  # noqa: B007 - body
                with branch:
                    sweep_beside(builder, args[2], (real.lanes, 1), args[6], beside, body)
        return context.get_dummy_value()

    i = types.intp
    flag, number = types.boolean, types.int32
    return types.void(x, i, i, e, z, i, flag, number, number, flag, out, i), emit


@intrinsic
def encode_float(_typing, x, start, count, e, first, each, mantissa, smallest, top, width, out, to):
    """Minifloats, ties to even, saturating at ``top``: any width and mantissa, in one formula.

    Adding a power of two C leaves exactly the mantissa bits of the format below the point of |x|,
    so the processor's own rounding is the one rounding; below ``smallest``, the smallest normal
    number, C stays where it is, which rounds subnormals on the same line.
    """
    real = REALS[x.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        scales = [data(context, builder, signature, args, 3, 4)]
        mantissa, smallest, top, width = args[6:10]
        target = data(context, builder, signature, args, 10, 11)
        bits = real.bits
        one = ir.Constant(bits, 1)
        mantissa, width = builder.zext(mantissa, I64), builder.zext(width, I64)
        mantissa, width = (builder.trunc(v, bits) if bits == I32 else v for v in (mantissa, width))
        smallest, top = (bits_of(builder, real, number) for number in (smallest, top))
        drop = builder.sub(ir.Constant(bits, real.mantissa), mantissa)
        lift = builder.shl(drop, ir.Constant(bits, real.mantissa))
        sign_at = builder.sub(width, one)
        sign_from = builder.sub(ir.Constant(bits, bits.width), width)
        sign_mask = builder.shl(one, sign_at)

        def body(lanes, index, scale):
            ratio = builder.fdiv(lanes.load(source, index), as_real(builder, lanes, real, scale))
            ratio = builder.bitcast(ratio, lanes.of(bits))
            size = builder.and_(ratio, lanes.fill(bits, real.magnitude_mask))
            size = lanes.call("umin", size, lanes.splat(top))
            power = builder.and_(size, lanes.fill(bits, real.exponent_mask))
            power = lanes.call("umax", power, lanes.splat(smallest))
            anchor = builder.add(power, lanes.splat(lift))
            total = builder.fadd(*(builder.bitcast(v, lanes.of(real.kind)) for v in (size, anchor)))
            steps = builder.sub(builder.bitcast(total, lanes.of(bits)), anchor)
            base = builder.lshr(builder.sub(power, lanes.splat(smallest)), lanes.splat(drop))
            sign = builder.and_(builder.lshr(ratio, lanes.splat(sign_from)), lanes.splat(sign_mask))
            code = builder.or_(builder.add(base, steps), sign)
            lanes.store(builder.trunc(code, lanes.of(I8)), target, index)

        sweep_beside(builder, args[2], (real.lanes, 1), args[5], scales, body)
        return context.get_dummy_value()

    i = types.intp
    flag, number, float64 = types.boolean, types.int32, types.float64
    return types.void(x, i, i, e, i, flag, number, float64, float64, number, out, i), emit


@intrinsic
def encode_lookup(_typing, x, start, count, e, first, each, edges, steps, out, to):
    """Count how many of the ``steps`` edges each ratio is above: its index. NaN: 0."""
    real = REALS[x.dtype]
    widths = (4 * real.lanes, real.lanes, 1)  # wide: an edge is loaded once for many values

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        scales = [data(context, builder, signature, args, 3, 4)]
        array = context.make_array(signature.args[6])(context, builder, args[6])
        target = data(context, builder, signature, args, 8, 9)

        def body(lanes, index, scale):
            ratio = builder.fdiv(lanes.load(source, index), as_real(builder, lanes, real, scale))
            passed = cgutils.alloca_once(builder, lanes.of(real.bits))
            builder.store(lanes.fill(real.bits, 0), passed)
            with cgutils.for_range(builder, args[7]) as loop:
                edge = builder.load(builder.gep(array.data, [loop.index]))
                above = builder.fcmp_ordered(">", ratio, lanes.splat(edge))
                count = builder.sub(builder.load(passed), builder.sext(above, lanes.of(real.bits)))
                builder.store(count, passed)
            lanes.store(builder.trunc(builder.load(passed), lanes.of(I8)), target, index)

        sweep_beside(builder, args[2], widths, args[5], scales, body)
        return context.get_dummy_value()

    i = types.intp
    return types.void(x, i, i, e, i, types.boolean, edges, i, out, i), emit
