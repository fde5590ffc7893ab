"""Dots of rows of codes with vectors, in LLVM: codes become numbers in registers.

There are three kinds: of float32, of integers, and of ternary codes, which multiply nothing.
``dots.py`` states them in plain NumPy and binds them to their names.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from qnumba.cpu.simd import FLOAT, I32, REALS, Lanes, call, data
from qnumba.cpu.simd_dots import (
    BYTES,
    CHUNK,
    FLOATS,
    LANES,
    ROW,
    SPLITS,
    WHOLES,
    Dot,
    Sums,
    const,
    loop,
    total,
)

FLOATING, WHOLE, TERNARY = 1, 2, 3  # kinds of dots
HALF_LANE = 16  # bits of a lane from which codes are taken in place
MANTISSA, BIAS = 23, 127  # of float32

i, number, real = types.intp, types.int32, types.float32


# --- codes times float32


def numbers_of(dot, chunk, offsets):
    """Yield the codes of a chunk as float32, step by step, less the offset of their place.

    The bits of a code become the last ones of a large power of two, which is in the offset: the
    difference is exact.
    """
    builder, lanes = dot.builder, dot.lanes
    for half in range(2):
        if half:
            chunk = builder.lshr(chunk, lanes.fill(I32, HALF_LANE))
        for offset, place in zip(offsets, range(0, HALF_LANE, dot.bits), strict=True):
            power = (BIAS + MANTISSA - place) << MANTISSA
            code = builder.and_(chunk, lanes.fill(I32, 2**dot.bits - 1 << place))
            code = builder.or_(code, lanes.fill(I32, power))
            yield builder.fsub(builder.bitcast(code, FLOATS), offset)


def offsets_of(dot, row, span, split):
    """Return what is subtracted from codes; zero points differ only where spans have one scale."""
    builder = dot.builder
    place = builder.add(dot.first[row], span) if split == LANES else const(0)
    point = builder.load(builder.gep(dot.points, [builder.mul(place, dot.hop)]))
    bases = [2.0 ** (MANTISSA - place) for place in range(0, HALF_LANE, dot.bits)]
    return [dot.lanes.splat(builder.fadd(point, ir.Constant(FLOAT, base))) for base in bases]


def one_by_one(dot):
    """One row, one vector: the sum of a span is scaled when it is known."""
    builder, steps = dot.builder, 32 // dot.bits
    sums = Sums(builder, FLOATS, 1)

    def body(split):
        parts = Sums(builder, FLOATS, 4 if split == LANES else 2)

        def before(span):
            parts.clear()
            return dot.scale(0, span, split), offsets_of(dot, 0, span, split)

        def each(state, index):
            for k, value in enumerate(numbers_of(dot, dot.chunk(0, index), state[1])):
                x = dot.load(dot.x, dot.beside(0, index, k, steps), FLOATS, CHUNK)
                place = k % len(parts.places)
                parts[place] = dot.lanes.call("fma", value, x, parts[place])

        def after(state):
            sums[0] = dot.lanes.call("fma", parts.folded(), state[0], sums[0])

        dot.spans(split, before, each, after)

    dot.by_split(SPLITS, body)
    dot.store(0, total(builder, sums[0]))


def many_by_many(dot):
    """Several rows and vectors: a number is scaled, and serves all vectors."""
    builder, steps = dot.builder, 32 // dot.bits
    sums = Sums(builder, FLOATS, dot.rows * dot.vectors)

    def body(split):
        def before(span):
            return [
                (dot.scale(row, span, split), offsets_of(dot, row, span, split))
                for row in range(dot.rows)
            ]

        def each(state, index):
            for row, (scale, offsets) in enumerate(state):
                for k, value in enumerate(numbers_of(dot, dot.chunk(row, index), offsets)):
                    scaled = builder.fmul(value, scale)
                    for v in range(dot.vectors):
                        x = dot.load(dot.x, dot.beside(v, index, k, steps), FLOATS, CHUNK)
                        place = row * dot.vectors + v
                        sums[place] = dot.lanes.call("fma", scaled, x, sums[place])

        dot.spans(split, before, each, lambda _: None)

    dot.by_split(SPLITS, body)
    for place in range(len(sums.places)):
        dot.store(place, total(builder, sums[place]))


def ternary(dot):
    """Codes 0, 1 and -1: numbers are added, with the sign of the code, where it is not 0."""
    builder, lanes, steps = dot.builder, dot.lanes, 32 // dot.bits
    sums = Sums(builder, FLOATS, 4)

    def each(index):
        chunk = dot.chunk(0, index)
        for k in range(steps):
            x = dot.load(dot.x, dot.beside(0, index, k, steps), WHOLES, CHUNK)
            sign = builder.shl(chunk, lanes.fill(I32, 30 - 2 * k))
            sign = builder.and_(sign, lanes.fill(I32, 1 << 31))
            term = builder.bitcast(builder.xor(x, sign), FLOATS)
            is_set = builder.and_(chunk, lanes.fill(I32, 1 << 2 * k))
            is_set = builder.icmp_unsigned("!=", is_set, lanes.fill(I32, 0))
            old = sums[k % 4]
            sums[k % 4] = builder.select(is_set, builder.fadd(old, term), old)

    loop(builder, const(0), dot.chunks, 1, each)
    scale = builder.fmul(builder.load(dot.scales[0]), dot.share)
    dot.store(0, builder.fmul(total(builder, sums.folded()), scale))


# --- codes times int8 codes


def dot_of_bytes(dot, start, unsigned, signed):
    """Add to every lane the products of its 4 unsigned bytes and 4 signed bytes."""
    builder = dot.builder
    if "+avx512vnni" in dot.context.codegen().magic_tuple()[2].split(","):
        return call(builder, "llvm.x86.avx512.vpdpbusd.512", WHOLES, start, unsigned, signed)
    wide = ir.VectorType(I32, CHUNK)
    products = builder.mul(
        builder.zext(builder.bitcast(unsigned, BYTES), wide),
        builder.sext(builder.bitcast(signed, BYTES), wide),
    )
    for count in (CHUNK // 2, CHUNK // 4):
        even, odd = (
            ir.Constant(ir.VectorType(I32, count), [2 * k + side for k in range(count)])
            for side in (0, 1)
        )
        even, odd = (builder.shuffle_vector(products, products, side) for side in (even, odd))
        products = builder.add(even, odd)
    return builder.add(start, products)


def whole(dot):
    """Integers: the dot of a chunk is exact in every lane; a row with one scale is exact."""
    builder, count = dot.builder, dot.rows * dot.vectors
    results = Sums(builder, FLOAT, count)

    def body(split):
        sums = Sums(builder, WHOLES if split == ROW else FLOATS, count)

        def before(span):
            return [dot.scale(row, span, split) for row in range(dot.rows)]

        def each(scales, index):
            for row, scale in enumerate(scales):
                codes = bytes_of(dot, row, index)
                for v in range(dot.vectors):
                    one, place = sum_of_bytes(dot, codes, v, index), row * dot.vectors + v
                    if split == ROW:
                        sums[place] = builder.add(sums[place], one)
                        continue
                    x_scale = dot.load(dot.x_scales, dot.beside(v, index, 0, 1), FLOATS)
                    both = builder.fmul(scale, x_scale)
                    sums[place] = dot.lanes.call(
                        "fma", builder.sitofp(one, FLOATS), both, sums[place]
                    )

        dot.spans(split, before, each, lambda _: None)
        for place in range(count):
            result = total(builder, sums[place])
            results[place] = scaled(dot, result, place) if split == ROW else result

    dot.by_split((ROW, *SPLITS), body)
    for place in range(count):
        dot.store(place, results[place])


def bytes_of(dot, row, index):
    """Return the codes of a chunk as unsigned bytes, in as many vectors as a byte has codes."""
    builder, lanes = dot.builder, dot.lanes
    chunk, mask = dot.chunk(row, index), lanes.fill(I32, (2**dot.bits - 1) * 0x01010101)
    shifts = [lanes.fill(I32, shift) for shift in range(0, 8, dot.bits)]
    return [builder.and_(builder.lshr(chunk, shift), mask) for shift in shifts]


def sum_of_bytes(dot, codes, v, index):
    """Return the dot of every lane of a chunk."""
    one = dot.load(dot.minus, dot.beside(v, index, 0, 1), WHOLES)
    for k, code in enumerate(codes):
        place = dot.builder.mul(dot.beside(v, index, k, len(codes)), const(CHUNK // LANES))
        one = dot_of_bytes(dot, one, code, dot.load(dot.x, place, WHOLES, CHUNK))
    return one


def scaled(dot, result, place):
    """Return the sum of a row with one scale as float32, times both scales."""
    builder = dot.builder
    row, v = divmod(place, dot.vectors)
    x_scale = builder.load(builder.gep(dot.x_scales, [dot.beside(v, const(0), 0, 1)]))
    scale = builder.fmul(builder.load(dot.scales[row]), dot.share)
    return builder.fmul(builder.sitofp(result, FLOAT), builder.fmul(scale, x_scale))


@intrinsic
def dot_codes(
    _typing, tile, chunks, per_span, split, hop, flip, share, words, starts, firsts, scales, points,
    x, minus, x_scales, vector, out,
):  # fmt: skip
    """Write the dots of a tile of rows and vectors to ``out``, a row after the other."""

    def emit(context, builder, signature, args):
        dot = Dot(context, builder, signature, args)
        is_one = dot.rows * dot.vectors == 1
        floating = one_by_one if is_one else many_by_many
        {FLOATING: floating, WHOLE: whole, TERNARY: ternary}[dot.kind](dot)
        return context.get_dummy_value()

    arrays = (words, starts, firsts, scales, points, x, minus, x_scales)
    return types.void(tile, i, i, i, i, number, real, *arrays, i, out), emit


@intrinsic
def dot_numbers(_typing, a, start, x, x_start, count):
    """Return the sum of ``a[start + k] * x[x_start + k]``, float32 or float64."""
    kind = REALS[a.dtype]

    def emit(context, builder, signature, args):
        left, right = (data(context, builder, signature, args, k, k + 1) for k in (0, 2))
        lanes, single = Lanes(builder, kind.lanes), Lanes(builder, 1)
        sums, rest = Sums(builder, lanes.of(kind.kind), 4), Sums(builder, kind.kind, 1)
        count, four = args[4], 4 * kind.lanes
        stops = [builder.and_(count, const(-step)) for step in (four, kind.lanes)]

        def add(width, target, place, index):
            pair = (width.load(left, index), width.load(right, index))
            target[place] = width.call("fma", *pair, target[place])

        def four_at(index):
            for k in range(4):
                add(lanes, sums, k, builder.add(index, const(k * kind.lanes)))

        loop(builder, const(0), stops[0], four, four_at)
        loop(builder, *stops, kind.lanes, lambda index: add(lanes, sums, 0, index))
        loop(builder, stops[1], count, 1, lambda index: add(single, rest, 0, index))
        return builder.fadd(total(builder, sums.folded()), rest[0])

    return a.dtype(a, i, x, i, i), emit
