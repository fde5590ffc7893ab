"""Ranges of runs of values, and scales from ranges, in LLVM. See ``simd_encode.py``."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from qnumba.cpu.simd import (
    DOUBLE,
    FLOAT,
    I64,
    REALS,
    Lanes,
    as_kind,
    bits_of,
    call,
    data,
    prefetch,
    suffix,
    sweep,
)

HUGE = 2.0**64

# --- ranges


class Widest:
    """The largest magnitude of what a sweep adds, by its bits: infinity or NaN is the largest."""

    def __init__(self, builder, real):
        self.builder, self.real = builder, real
        self.best = {
            width: cgutils.alloca_once_value(builder, Lanes(builder, width).fill(real.bits, 0))
            for width in (real.lanes, 1)
        }

    def size_of(self, lanes, values):
        """Return the bits of magnitudes."""
        bits = self.builder.bitcast(values, lanes.of(self.real.bits))
        return self.builder.and_(bits, lanes.fill(self.real.bits, self.real.magnitude_mask))

    def add(self, lanes, size):
        """Take magnitudes in."""
        place = self.best[lanes.width]
        self.builder.store(lanes.call("umax", self.builder.load(place), size), place)

    def bits(self):
        """Return the bits of the largest."""
        vector, rest = (self.builder.load(place) for place in self.best.values())
        top = Lanes(self.builder, self.real.lanes).top(vector)
        return Lanes(self.builder, 1).call("umax", top, rest)

    def value(self):
        """Return the largest."""
        return self.builder.bitcast(self.bits(), self.real.kind)


class Finite:
    """Whether all numbers of a sweep are finite: 0 times any other is NaN, as are its sums."""

    def __init__(self, builder, real):
        self.builder, self.real = builder, real
        self.sums = {
            width: cgutils.alloca_once_value(builder, Lanes(builder, width).fill(real.kind, 0))
            for width in (real.lanes, 1)
        }

    def add(self, lanes, numbers):
        """Take numbers in."""
        place = self.sums[lanes.width]
        zero = lanes.fill(self.real.kind, 0)
        self.builder.store(lanes.multiply_add(numbers, zero, self.builder.load(place)), place)

    def value(self):
        """Return whether all were finite."""
        sums = [self.builder.load(place) for place in self.sums.values()]
        vector, rest = (self.builder.fcmp_ordered("==", total, total) for total in sums)
        name = f"llvm.vector.reduce.and.{suffix(vector.type)}"
        return self.builder.and_(call(self.builder, name, vector.type.element, vector), rest)


class Extreme:
    """The least ("<") or greatest (">") of 0 and what a sweep adds. NaN is passed over."""

    def __init__(self, builder, real, relation):
        self.builder, self.real, self.relation = builder, real, relation
        self.best = {
            width: cgutils.alloca_once_value(builder, Lanes(builder, width).fill(real.kind, 0))
            for width in (real.lanes, 1)
        }

    def add(self, width, values):
        """Take values in."""
        best = self.builder.load(self.best[width])
        wins = self.builder.fcmp_ordered(self.relation, values, best)
        self.builder.store(self.builder.select(wins, values, best), self.best[width])

    def value(self):
        """Return what was found."""
        vector = self.builder.load(self.best[self.real.lanes])
        name = {"<": "fmin", ">": "fmax"}[self.relation]
        reduce = f"llvm.vector.reduce.{name}.{suffix(vector.type)}"
        self.add(1, call(self.builder, reduce, self.real.kind, vector))
        return self.builder.load(self.best[1])


@intrinsic
def absmax(_typing, x, start, count):
    """Return the largest magnitude by its bits: infinity or NaN where there is one."""
    real = REALS[x.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        widest = Widest(builder, real)

        def body(lanes, index):
            widest.add(lanes, widest.size_of(lanes, lanes.load(source, index)))

        sweep(builder, args[2], (real.lanes, 1), body)
        return widest.value()

    return x.dtype(x, types.intp, types.intp), emit


def _tops_of_long(lanes, first, length, size_at, tops):
    """Store the largest of each of as many runs as there are lanes, of two vectors or more."""
    builder, kind = lanes.builder, tops.type.pointee
    zero, count = ir.Constant(I64, 0), ir.Constant(I64, lanes.width)
    best = cgutils.alloca_once(builder, kind)
    found = cgutils.alloca_once(builder, ir.ArrayType(kind, lanes.width))
    with cgutils.for_range(builder, count) as run:
        begin = builder.mul(builder.add(first, run.index), length)
        builder.store(ir.Constant(kind, None), best)
        with cgutils.for_range_slice(builder, zero, length, count) as (k, _):
            size = size_at(lanes, builder.add(begin, k))
            builder.store(lanes.call("umax", builder.load(best), size), best)
        builder.store(builder.load(best), builder.gep(found, [zero, run.index]))
    places = [builder.gep(found, [zero, ir.Constant(I64, k)]) for k in range(lanes.width)]
    builder.store(lanes.maxima([builder.load(place) for place in places]), tops)


@intrinsic
def absmax_runs(_typing, x, start, runs, length, ahead, high, first):
    """Widen high[first:first + runs] by the magnitudes of each run; return their largest.

    As many runs as a vector has lanes are reduced together, which takes two shuffles and one
    maximum a run.
    """
    real = REALS[x.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        target = data(context, builder, signature, args, 5, 6)
        target = builder.bitcast(target, real.bits.as_pointer())
        runs, length, ahead = args[2:5]
        zero, lanes = ir.Constant(I64, 0), Lanes(builder, real.lanes)
        best = cgutils.alloca_once_value(builder, lanes.fill(real.bits, 0))

        def size_at(some, index):
            if some.width == real.lanes:
                prefetch(builder, source, builder.add(index, ahead))
            bits = builder.bitcast(some.load(source, index), some.of(real.bits))
            return builder.and_(bits, some.fill(real.bits, real.magnitude_mask))

        def widen(place, size):
            builder.store(Lanes(builder, 1).call("umax", builder.load(place), size), place)

        def keep(some, size, run):
            some.store(some.call("umax", size, some.load(target, run)), target, run)

        is_whole = builder.and_(length, ir.Constant(I64, real.lanes - 1))
        is_whole = builder.icmp_signed("==", is_whole, zero)
        together = builder.select(is_whole, builder.and_(runs, ir.Constant(I64, -real.lanes)), zero)
        single, tops = (cgutils.alloca_once(builder, lanes.of(real.bits)) for _ in range(2))
        one = ir.Constant(I64, real.lanes)  # vector

        def vector_at(run, k):
            run = builder.add(run, ir.Constant(I64, k))
            return size_at(lanes, builder.mul(run, one))

        with cgutils.for_range_slice(builder, zero, together, one) as (run, _):
            with builder.if_else(builder.icmp_signed("==", length, one)) as (short, long):
                with short:
                    builder.store(
                        lanes.maxima([vector_at(run, k) for k in range(real.lanes)]), tops
                    )
                with long:
                    _tops_of_long(lanes, run, length, size_at, tops)
            found = builder.load(tops)
            widen(best, found)
            keep(lanes, found, run)
        alone = cgutils.alloca_once(builder, real.bits)
        with cgutils.for_range_slice(builder, together, runs, ir.Constant(I64, 1)) as (run, _):
            builder.store(lanes.fill(real.bits, 0), single)
            builder.store(ir.Constant(real.bits, 0), alone)
            begin = builder.mul(run, length)

            def body(some, k, begin=begin):
                size = size_at(some, builder.add(begin, k))
                if some.width == real.lanes:
                    widen(single, size)
                else:
                    widen(alone, size if some.width == 1 else some.top(size))

            sweep(builder, length, (real.lanes, real.lanes // 2, real.lanes // 4, 1), body)
            widen(alone, lanes.top(builder.load(single)))
            top = builder.load(alone)
            widen(best, lanes.splat(top))
            keep(Lanes(builder, 1), top, run)
        return builder.bitcast(lanes.top(builder.load(best)), real.kind)

    i = types.intp
    return x.dtype(x, i, i, i, i, high, i), emit


@intrinsic
def absmax_each(_typing, x, start, count, high, first):
    """Widen high[first:first + count] by the magnitude beside each; return the largest."""
    real = REALS[x.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        target = data(context, builder, signature, args, 3, 4)
        target = builder.bitcast(target, real.bits.as_pointer())
        widest = Widest(builder, real)

        def body(lanes, index):
            size = widest.size_of(lanes, lanes.load(source, index))
            widest.add(lanes, size)
            lanes.store(lanes.call("umax", size, lanes.load(target, index)), target, index)

        sweep(builder, args[2], (real.lanes, 1), body)
        return widest.value()

    i = types.intp
    return x.dtype(x, i, i, high, i), emit


@intrinsic
def extremes(_typing, x, start, count):
    """Return the least and the greatest of the values and 0. NaN is passed over."""
    real = REALS[x.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        ends = [Extreme(builder, real, relation) for relation in "<>"]

        def body(lanes, index):
            value = lanes.load(source, index)
            for end in ends:
                end.add(lanes.width, value)

        sweep(builder, args[2], (real.lanes, 1), body)
        found = [end.value() for end in ends]
        return context.make_tuple(builder, signature.return_type, found)

    return types.UniTuple(x.dtype, 2)(x, types.intp, types.intp), emit


@intrinsic
def scales_of(
    _typing, high, first, count, half, share, most, least, smallest, mantissa, is_up, scales
):
    """Write scales[first:first + count]: ``high / half / share``, to ``mantissa`` bits.

    As in ``encode_float``: adding a power of two leaves the bits to keep below the point, also
    where they are subnormal, below ``smallest``. Rounding is up, or to even. Where that power would
    overflow, scales are made smaller for the while.
    """
    real = REALS[high.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        half, share, most, least = (as_kind(builder, real, number) for number in args[3:7])
        smallest = bits_of(builder, real, args[7])
        mantissa = args[8] if real.bits == I64 else builder.trunc(args[8], real.bits)
        drop = builder.sub(ir.Constant(real.bits, real.mantissa), mantissa)
        lift = builder.shl(drop, ir.Constant(real.bits, real.mantissa))
        is_exact = builder.icmp_signed("==", drop, ir.Constant(real.bits, 0))
        # Without mantissa bits a number is even if its exponent is: halfway above it, go down.
        is_power = builder.icmp_signed("==", mantissa, ir.Constant(real.bits, 0))
        to_even_power = builder.and_(is_power, builder.not_(args[9]))
        to_even_power = builder.zext(to_even_power, real.bits)
        finite = float(np.finfo(np.float32).max)
        array = context.make_array(signature.args[10])(context, builder, args[10])
        target = builder.gep(array.data, [args[1]])

        def body(lanes, index):
            size = builder.fdiv(lanes.load(source, index), lanes.splat(half))
            size = lanes.least(size, lanes.fill(real.kind, finite))
            size = lanes.least(builder.fdiv(size, lanes.splat(share)), lanes.splat(most))
            is_huge = builder.fcmp_ordered(">", size, lanes.fill(real.kind, HUGE))
            one = lanes.fill(real.kind, 1)
            down = builder.select(is_huge, lanes.fill(real.kind, 1 / HUGE), one)
            size = builder.fmul(size, down)
            bits = builder.bitcast(size, lanes.of(real.bits))
            power = builder.and_(bits, lanes.fill(real.bits, real.exponent_mask))
            power = lanes.call("umax", power, lanes.splat(smallest))
            anchor = builder.add(power, lanes.splat(lift))
            anchor = builder.bitcast(anchor, lanes.of(real.kind))
            exponent = builder.lshr(bits, lanes.fill(real.bits, real.mantissa))
            is_even = builder.and_(builder.not_(exponent), lanes.splat(to_even_power))
            below = builder.bitcast(lanes.call("usub.sat", bits, is_even), lanes.of(real.kind))
            total = builder.fadd(below, anchor)
            is_less = builder.fcmp_ordered("<", builder.fsub(total, anchor), size)
            is_less = builder.and_(is_less, lanes.splat(args[9]))
            total = builder.bitcast(total, lanes.of(real.bits))
            total = builder.add(total, builder.zext(is_less, lanes.of(real.bits)))
            scale = builder.fsub(builder.bitcast(total, lanes.of(real.kind)), anchor)
            scale = builder.select(is_exact, size, scale)
            up = builder.select(is_huge, lanes.fill(real.kind, HUGE), one)
            scale = builder.fmul(scale, up)
            is_least = builder.fcmp_ordered("<", scale, lanes.splat(least))
            scale = builder.select(is_least, lanes.splat(least), scale)
            scale = lanes.least(scale, lanes.splat(most))
            if real.kind == DOUBLE:
                scale = builder.fptrunc(scale, lanes.of(FLOAT))
            lanes.store(scale, target, index)

        sweep(builder, args[2], (real.lanes, 1), body)
        return context.get_dummy_value()

    i, flag, number = types.intp, types.boolean, types.float64
    return types.void(high, i, i, *[number] * 5, i, flag, scales), emit
