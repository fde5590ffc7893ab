"""Decoders of runs of codes, packing, and 16-bit floats, in LLVM.

Codes and words are bytes. A decoder writes ``number * e`` in the type of ``out``, float32 or
float64, as in ``simd_encode.py``.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from qnumba.cpu.simd import (
    DOUBLE,
    FLOAT,
    HALF,
    I8,
    I16,
    I32,
    I64,
    REALS,
    Lanes,
    as_real,
    data,
    prefetch,
    sweep,
    sweep_runs,
)

NAN_CODE = 0x7F  # NaN in both minifloats of 8 bits; in 4 bits no magnitude is so large
PACKED_LANES = 64

i, flag, number = types.intp, types.boolean, types.int32


# --- decode runs of codes from codes[start] on to numbers out[to:], by the scales from `first` on


@intrinsic
def decode_int(_typing, codes, start, runs, length, e, z, first, each, mask, sign, out, to):
    """Return ``(code - z) * e``; ``sign`` is the sign bit of the field, 0 where it has none.

    ``z`` is None where zero points are 0.
    """
    real = REALS[out.dtype]
    has_points = z != types.none

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        beside = [
            data(context, builder, signature, args, k, 6) for k in ((4, 5) if has_points else (4,))
        ]
        mask, sign = args[8:10]
        target = data(context, builder, signature, args, 10, 11)

        def body(lanes, index, scale, point=None):
            code = builder.zext(lanes.load(source, index), lanes.of(I32))
            code = builder.and_(code, lanes.splat(mask))
            code = builder.sub(builder.xor(code, lanes.splat(sign)), lanes.splat(sign))
            code = builder.sub(code, point) if point else code
            steps = builder.sitofp(code, lanes.of(real.kind))
            lanes.store(builder.fmul(steps, as_real(builder, lanes, real, scale)), target, index)

        sweep_runs(builder, args[2], args[3], args[7], beside, (16, 1), body)
        return context.get_dummy_value()

    return types.void(codes, i, i, i, e, z, i, flag, number, number, out, i), emit


@intrinsic
def decode_float(
    _typing, codes, start, runs, length, e, first, each, shift, factor, width, out, to
):
    """Minifloats: the bits of a half float ``shift`` places up, times a power of two."""
    real = REALS[out.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        scales = [data(context, builder, signature, args, 4, 5)]
        shift, factor, width = builder.trunc(args[7], I16), args[8], builder.trunc(args[9], I16)
        target = data(context, builder, signature, args, 10, 11)
        one = ir.Constant(I16, 1)
        sign_up = builder.sub(ir.Constant(I16, 16), width)
        size_mask = builder.sub(builder.shl(one, builder.sub(width, one)), one)
        factor = factor if real.kind == DOUBLE else builder.fptrunc(factor, FLOAT)

        def body(lanes, index, scale):
            code = builder.zext(lanes.load(source, index), lanes.of(I16))
            size = builder.and_(code, lanes.splat(size_mask))
            sign = builder.and_(builder.shl(code, lanes.splat(sign_up)), lanes.fill(I16, 0x8000))
            half = builder.or_(sign, builder.shl(size, lanes.splat(shift)))
            value = builder.fpext(builder.bitcast(half, lanes.of(HALF)), lanes.of(real.kind))
            value = builder.fmul(value, lanes.splat(factor))
            is_nan = builder.icmp_unsigned("==", size, lanes.fill(I16, NAN_CODE))
            value = builder.select(is_nan, lanes.fill(real.kind, float("nan")), value)
            lanes.store(builder.fmul(value, as_real(builder, lanes, real, scale)), target, index)

        sweep_runs(builder, args[2], args[3], args[6], scales, (16, 1), body)
        return context.get_dummy_value()

    return types.void(codes, i, i, i, e, i, flag, number, types.float64, number, out, i), emit


@intrinsic
def decode_table(_typing, codes, start, runs, length, e, first, each, table, out, to):
    """Look up the low four bits in a table of 16: a tree of selects, faster than a gather."""
    real = REALS[out.dtype]

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        scales = [data(context, builder, signature, args, 4, 5)]
        array = context.make_array(signature.args[7])(context, builder, args[7])
        target = data(context, builder, signature, args, 8, 9)
        entries = [
            builder.load(builder.gep(array.data, [ir.Constant(I64, entry)])) for entry in range(16)
        ]

        def body(lanes, index, scale):
            code = builder.zext(lanes.load(source, index), lanes.of(I32))
            level = [lanes.splat(entry) for entry in entries]
            for bit in (8, 4, 2, 1):
                is_set = builder.and_(code, lanes.fill(I32, bit))
                is_set = builder.icmp_unsigned("!=", is_set, lanes.fill(I32, 0))
                level = [
                    builder.select(is_set, high, low)
                    for low, high in zip(level[:bit], level[bit:], strict=True)
                ]
            value = as_real(builder, lanes, real, level[0])
            lanes.store(builder.fmul(value, as_real(builder, lanes, real, scale)), target, index)

        sweep_runs(builder, args[2], args[3], args[6], scales, (16, 1), body)
        return context.get_dummy_value()

    return types.void(codes, i, i, i, e, i, flag, table, out, i), emit


# --- 16-bit floats, held as their bits


@intrinsic
def widen(_typing, x, start, count, ahead, brain, out):
    """Write x[start:start + count] to out as float32; ``brain``: bfloat16, else float16."""

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        array = context.make_array(signature.args[5])(context, builder, args[5])

        def from_brain(lanes, bits):
            wide = builder.shl(builder.zext(bits, lanes.of(I32)), lanes.fill(I32, 16))
            return builder.bitcast(wide, lanes.of(FLOAT))

        def from_half(lanes, bits):
            return builder.fpext(builder.bitcast(bits, lanes.of(HALF)), lanes.of(FLOAT))

        def body(lanes, k):
            if lanes.width > 1:
                prefetch(builder, source, builder.add(k, args[3]))
            lanes.store(convert(lanes, lanes.load(source, k)), array.data, k)

        with builder.if_else(args[4]) as branches:
            for branch, convert in zip(branches, (from_brain, from_half), strict=True):  # noqa: B007 - body
                with branch:
                    sweep(builder, args[2], (16, 1), body)
        return context.get_dummy_value()

    return types.void(x, i, i, i, flag, out), emit


@intrinsic
def narrow(_typing, x, count, brain, out, to):
    """Write x[:count] to out[to:] as 16-bit floats, rounded to nearest even."""

    def emit(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        target = data(context, builder, signature, args, 3, 4)

        def to_brain(lanes, value):
            whole = lanes.of(I32)
            bits = builder.bitcast(value, whole)
            kept = builder.lshr(bits, lanes.fill(I32, 16))
            odd = builder.and_(kept, lanes.fill(I32, 1))
            rounded = builder.add(bits, builder.add(odd, lanes.fill(I32, 0x7FFF)))
            rounded = builder.lshr(rounded, lanes.fill(I32, 16))
            is_number = builder.fcmp_ordered("==", value, value)
            quiet = builder.or_(kept, lanes.fill(I32, 0x40))
            return builder.trunc(builder.select(is_number, rounded, quiet), lanes.of(I16))

        def to_half(lanes, value):
            return builder.bitcast(builder.fptrunc(value, lanes.of(HALF)), lanes.of(I16))

        with builder.if_else(args[2]) as branches:
            for branch, convert in zip(branches, (to_brain, to_half), strict=True):
                with branch:
                    sweep(
                        builder,
                        args[1],
                        (16, 1),
                        lambda lanes, k, convert=convert: lanes.store(
                            convert(lanes, lanes.load(array.data, k)), target, k
                        ),
                    )
        return context.get_dummy_value()

    return types.void(x, i, flag, out, i), emit


# --- effective scales


@intrinsic
def effective(_typing, scales, first, count, share, dead, e, to):
    """Write share * scales[first:first + count] to e[to:], ``dead`` for a scale of 0."""

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        share, dead = args[3:5]
        target = data(context, builder, signature, args, 5, 6)

        def body(lanes, index):
            scale = builder.fmul(lanes.load(source, index), lanes.splat(share))
            is_dead = builder.fcmp_ordered("==", scale, lanes.fill(FLOAT, 0))
            lanes.store(builder.select(is_dead, lanes.splat(dead), scale), target, index)

        sweep(builder, args[2], (16, 1), body)
        return context.get_dummy_value()

    return types.void(scales, i, i, types.float32, types.float32, e, i), emit


# --- packing: `count` codes, a multiple of PACKED_LANES, and their words of 4 or 2 bits a code


def _fold(builder, codes, width):
    """Return 64 codes as fields of ``width`` bits: neighbours meet until a group is one byte."""
    group = 8 // width
    kind = ir.IntType(8 * group)
    lanes = Lanes(builder, PACKED_LANES // group)
    packed = builder.bitcast(codes, lanes.of(kind))
    field = 2**width - 1
    bits = lanes.fill(kind, 0)
    for k in range(group):
        moved = builder.lshr(packed, lanes.fill(kind, (8 - width) * k))
        bits = builder.or_(bits, builder.and_(moved, lanes.fill(kind, field << width * k)))
    return builder.trunc(bits, lanes.of(I8))


def _unfold(builder, words, width):
    """Return the 64 codes of a vector of words: each byte repeated, shifted and masked."""
    group = 8 // width
    lanes = Lanes(builder, PACKED_LANES)
    places = ir.Constant(lanes.of(I32), [k // group for k in range(PACKED_LANES)])
    shifts = ir.Constant(lanes.of(I8), [width * (k % group) for k in range(PACKED_LANES)])
    repeated = builder.shuffle_vector(words, words, places)
    return builder.and_(builder.lshr(repeated, shifts), lanes.fill(I8, 2**width - 1))


def _sweep_packed(builder, count, width, move):
    """Call ``move(width, code, word)`` at every 64th code, for fields of 4 or 2 bits."""
    with builder.if_else(builder.icmp_signed("==", width, ir.Constant(I32, 4))) as branches:
        for branch, bits in zip(branches, (4, 2), strict=True):

            def body(_lanes, code, bits=bits):
                move(bits, code, builder.sdiv(code, ir.Constant(I64, 8 // bits)))

            with branch:
                sweep(builder, count, (PACKED_LANES,), body)


@intrinsic
def pack(_typing, codes, start, count, width, words, to):
    """Pack codes[start:start + count] into words[to:], first code in the lowest bits."""

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        target = data(context, builder, signature, args, 4, 5)

        def move(bits, code, word):
            fields = _fold(builder, Lanes(builder, PACKED_LANES).load(source, code), bits)
            Lanes(builder, PACKED_LANES * bits // 8).store(fields, target, word)

        _sweep_packed(builder, args[2], args[3], move)
        return context.get_dummy_value()

    return types.void(codes, i, i, number, words, i), emit


@intrinsic
def unpack(_typing, words, start, count, width, codes, to):
    """Unpack words[start:] into codes[to:to + count]; fields are not sign-extended."""

    def emit(context, builder, signature, args):
        source = data(context, builder, signature, args, 0, 1)
        target = data(context, builder, signature, args, 4, 5)

        def move(bits, code, word):
            fields = Lanes(builder, PACKED_LANES * bits // 8).load(source, word)
            Lanes(builder, PACKED_LANES).store(_unfold(builder, fields, bits), target, code)

        _sweep_packed(builder, args[2], args[3], move)
        return context.get_dummy_value()

    return types.void(words, i, i, number, codes, i), emit


# --- bits


@intrinsic
def to_bits(_typing, value):
    """Return the bits of a float64."""
    return types.uint64(types.float64), lambda _c, builder, _s, args: builder.bitcast(args[0], I64)


@intrinsic
def from_bits(_typing, value):
    """Return the float64 of 64 bits."""
    return types.float64(types.uint64), lambda _c, builder, _s, args: builder.bitcast(
        args[0], DOUBLE
    )
