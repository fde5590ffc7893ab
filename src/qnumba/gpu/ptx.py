"""The instructions Numba has no name for: the only inline PTX of the package.

Each name is an intrinsic that becomes one or a few PTX instructions in the kernel that calls it.
Numbers of 16 bits arrive by pointer type: float16 bits are ``uint16``, bfloat16 bits are ``int16``,
so that a kernel's signature alone says what it reads and writes.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.cuda import cgutils
from numba.cuda.extending import intrinsic

_I16, _I32, _I64 = (ir.IntType(width) for width in (16, 32, 64))
_F32, _F64 = ir.FloatType(), ir.DoubleType()

# Numba type -> LLVM type, constraint letter of inline PTX.
_REGISTERS = {
    types.uint16: (_I16, "h"),
    types.int32: (_I32, "r"),
    types.uint32: (_I32, "r"),
    types.int64: (_I64, "l"),
    types.uint64: (_I64, "l"),
    types.float32: (_F32, "f"),
    types.float64: (_F64, "d"),
}


def _call(builder, text, result, operands, arguments, *, collective=False):
    """Emit inline PTX: ``$0`` is the result, ``$1`` and so on the arguments."""
    letters = [_REGISTERS[operand][1] for operand in operands]
    constraints = ",".join(["=" + _REGISTERS[result][1], *letters])
    kinds = ir.FunctionType(_REGISTERS[result][0], [_REGISTERS[kind][0] for kind in operands])
    code = ir.InlineAsm(kinds, text, constraints, side_effect=collective)
    return builder.call(code, arguments)


def _emitter(text, result, operands, *, collective=False):
    """Return the code generator of an instruction with operands of fixed types."""

    def emit(context, builder, signature, arguments):
        cast = [
            context.cast(builder, argument, given, wanted)
            for argument, given, wanted in zip(arguments, signature.args, operands, strict=True)
        ]
        return _call(builder, text, result, operands, cast, collective=collective)

    return emit


def _unary(text, result, operand, *, collective=False):
    """Return an intrinsic of one operand."""
    emit = _emitter(text, result, (operand,), collective=collective)

    @intrinsic
    def instruction(_context, x):
        return result(x), emit

    return instruction


def _binary(text, result, *operands, collective=False):
    """Return an intrinsic of two operands."""
    emit = _emitter(text, result, operands, collective=collective)

    @intrinsic
    def instruction(_context, x, y):
        return result(x, y), emit

    return instruction


def _ternary(text, result, *operands):
    """Return an intrinsic of three operands."""
    emit = _emitter(text, result, operands)

    @intrinsic
    def instruction(_context, x, y, z):
        return result(x, y, z), emit

    return instruction


def _either(text):
    """Return an intrinsic of float32 or float64, whichever it is given."""

    @intrinsic
    def instruction(_context, x):
        kind = types.float64 if x == types.float64 else types.float32
        return kind(x), _emitter(text.format(kind.name.replace("float", "f")), kind, (kind,))

    return instruction


def _of_eight(text, result, operand):
    """Return an intrinsic of a tuple of eight."""
    emit = _emitter(text, result, (operand,) * 8)

    @intrinsic
    def instruction(_context, numbers):
        def unpacked(context, builder, signature, arguments):
            parts = [builder.extract_value(arguments[0], k) for k in range(8)]
            flat = result(*[signature.args[0].dtype] * 8)
            return emit(context, builder, flat, parts)

        return result(numbers), unpacked

    return instruction


# --- rounding and arithmetic that the compiler must not fuse or reorder

rint = _either("cvt.rni.{0}.{0} $0, $1;")  # nearest, ties to even
trunc = _either("cvt.rzi.{0}.{0} $0, $1;")
ceil = _either("cvt.rpi.{0}.{0} $0, $1;")
multiply = _binary("mul.rn.f32 $0, $1, $2;", types.float32, types.float32, types.float32)
divide = _binary("div.rn.f32 $0, $1, $2;", types.float32, types.float32, types.float32)
reciprocal = _unary("rcp.rn.f32 $0, $1;", types.float32, types.float32)
to_int = _unary("cvt.rni.s32.f32 $0, $1;", types.int32, types.float32)  # saturates; NaN is 0
# The greater magnitude; NaN if either is. One instruction of the hardware.
largest = _binary(
    "{ .reg .f32 a, b; abs.f32 a, $1; abs.f32 b, $2; max.NaN.f32 $0, a, b; }",
    types.float32,
    types.float32,
    types.float32,
)
least = _binary("min.f32 $0, $1, $2;", types.float32, types.float32, types.float32)
# Numba's max of two int32 is an int64, of five instructions.
later = _binary("max.s32 $0, $1, $2;", types.int32, types.int32, types.int32)
greatest = _binary("max.f32 $0, $1, $2;", types.float32, types.float32, types.float32)


# x * y + z, rounded once.
fused = _ternary(
    "fma.rn.f32 $0, $1, $2, $3;", types.float32, types.float32, types.float32, types.float32
)


# --- bits

# Bytes of two words, picked by the four digits of a third: 0 to 3 the first's, 4 to 7 the other's.
picked = _ternary(
    "prmt.b32 $0, $1, $2, $3;", types.uint32, types.uint32, types.uint32, types.uint32
)


def _bitcast(result, operand):
    """Return an intrinsic that reads the bits of one type as another."""

    @intrinsic
    def instruction(_context, x):
        def emit(context, builder, signature, arguments):
            value = context.cast(builder, arguments[0], signature.args[0], operand)
            return builder.bitcast(value, _REGISTERS[result][0])

        return result(x), emit

    return instruction


bits32 = _bitcast(types.uint32, types.float32)
float_of = _bitcast(types.float32, types.uint32)
bits64 = _bitcast(types.int64, types.float64)
double_of = _bitcast(types.float64, types.int64)


# --- numbers of 16 bits

half_to_float = _unary("cvt.f32.f16 $0, $1;", types.float32, types.uint16)
float_to_half = _unary("cvt.rn.f16.f32 $0, $1;", types.uint16, types.float32)
half_up = _unary("cvt.rp.f16.f32 $0, $1;", types.uint16, types.float32)  # toward +infinity
_TO_BFLOAT = (  # nearest even; a NaN keeps its upper bits and gets the quiet one
    "{ .reg .b32 b, r; .reg .pred p; mov.b32 b, $1; shr.u32 r, b, 16; and.b32 r, r, 1;"
    " add.u32 r, r, 0x7fff; add.u32 r, r, b; setp.nan.f32 p, $1, $1; @p or.b32 r, b, 0x400000;"
    " shr.u32 r, r, 16; cvt.u16.u32 $0, r; }"
)
float_to_bfloat = _unary(_TO_BFLOAT, types.uint16, types.float32)


# Two float32 to two numbers of 16 bits in a word, the first in the low half; sm_80 and newer.
half_pair = _binary("cvt.rn.f16x2.f32 $0, $2, $1;", types.uint32, types.float32, types.float32)
bfloat_pair = _binary("cvt.rn.bf16x2.f32 $0, $2, $1;", types.uint32, types.float32, types.float32)


def _element(context, builder, pointer, index, kind):
    """Return the address of an element of a raw pointer."""
    return builder.gep(pointer, [context.cast(builder, index, kind, types.int64)])


@intrinsic
def number_at(_context, x, i):
    """Return x[i] in its compute type: float64 for a float64 pointer, else float32."""
    held = x.dtype
    result = types.float64 if held == types.float64 else types.float32

    def emit(context, builder, signature, arguments):
        value = builder.load(_element(context, builder, *arguments, signature.args[1]))
        if held == types.uint16:
            text = "cvt.f32.f16 $0, $1;"
            return _call(builder, text, types.float32, (types.uint16,), [value])
        if held == types.int16:
            wide = builder.shl(builder.zext(value, _I32), ir.Constant(_I32, 16))
            return builder.bitcast(wide, _F32)
        return value

    return result(x, i), emit


@intrinsic
def put_product(_context, x, i, number, scale):  # noqa: ARG001 - cast as they are emitted
    """Set x[i] = number * scale, computed in float64 for a float64 pointer, else in float32."""
    held = x.dtype

    def emit(context, builder, signature, arguments):
        place = _element(context, builder, *arguments[:2], signature.args[1])
        compute = types.float64 if held == types.float64 else types.float32
        factors = [
            context.cast(builder, argument, types.float32, compute) for argument in arguments[2:]
        ]
        name = "f64" if held == types.float64 else "f32"
        value = _call(builder, f"mul.rn.{name} $0, $1, $2;", compute, (compute,) * 2, factors)
        if held in (types.uint16, types.int16):
            text = "cvt.rn.f16.f32 $0, $1;" if held == types.uint16 else _TO_BFLOAT
            value = _call(builder, text, types.uint16, (types.float32,), [value])
        builder.store(value, place)
        return context.get_dummy_value()

    return types.void(x, i, types.float32, types.float32), emit


# --- wide loads and stores: n words of 32 bits in one access


def _wide_load(count):
    """Return an intrinsic that reads ``count`` uint32 at x + 4 * i, aligned to their size."""
    result = types.UniTuple(types.uint32, count)

    @intrinsic
    def load(_context, x, i):
        def emit(context, builder, signature, arguments):
            place = _element(context, builder, *arguments, signature.args[1])
            vector = builder.load(builder.bitcast(place, ir.VectorType(_I32, count).as_pointer()))
            vector.align = 4 * count
            parts = [builder.extract_element(vector, ir.Constant(_I32, k)) for k in range(count)]
            return cgutils.pack_array(builder, parts)

        return result(x, i), emit

    return load


def _wide_store(count):
    """Return an intrinsic that writes ``count`` uint32 at x + 4 * i, aligned to their size."""

    @intrinsic
    def store(_context, x, i, words):
        def emit(context, builder, signature, arguments):
            place = _element(context, builder, *arguments[:2], signature.args[1])
            kind = ir.VectorType(_I32, count)
            vector = ir.Constant(kind, ir.Undefined)
            for k in range(count):
                word = builder.extract_value(arguments[2], k)
                word = context.cast(builder, word, signature.args[2].dtype, types.uint32)
                vector = builder.insert_element(vector, word, ir.Constant(_I32, k))
            access = builder.store(vector, builder.bitcast(place, kind.as_pointer()))
            access.align = 4 * count
            return context.get_dummy_value()

        return types.void(x, i, words), emit

    return store


load4, load2 = _wide_load(4), _wide_load(2)
store4, store2 = _wide_store(4), _wide_store(2)


@intrinsic
def raise_to(_context, x, i, number):
    """Set x[i] = max(x[i], number), of uint32, atomically."""

    def emit(context, builder, signature, arguments):
        place = _element(context, builder, *arguments[:2], signature.args[1])
        value = context.cast(builder, arguments[2], signature.args[2], types.uint32)
        kinds = ir.FunctionType(ir.VoidType(), [place.type, _I32])
        code = ir.InlineAsm(kinds, "red.global.max.u32 [$0], $1;", "l,r", side_effect=True)
        builder.call(code, [place, value])
        return context.get_dummy_value()

    return types.void(x, i, number), emit


# --- lanes of a warp, all 32 of which must take part

_FULL = "0xffffffff"
swap_lanes = _binary(
    f"shfl.sync.bfly.b32 $0, $1, $2, 31, {_FULL};",
    types.uint32,
    types.uint32,
    types.uint32,
    collective=True,
)
lane_value = _binary(
    f"shfl.sync.idx.b32 $0, $1, $2, 31, {_FULL};",
    types.uint32,
    types.uint32,
    types.uint32,
    collective=True,
)
_HALVES = (
    "{{ .reg .b32 lo, hi; mov.b64 {{lo, hi}}, $1; shfl.sync.{0}.b32 lo, lo, $2, 31, {1};"
    " shfl.sync.{0}.b32 hi, hi, $2, 31, {1}; mov.b64 $0, {{lo, hi}}; }}"
)
swap_lanes64 = _binary(
    _HALVES.format("bfly", _FULL), types.float64, types.float64, types.uint32, collective=True
)
lane_value64 = _binary(
    _HALVES.format("idx", _FULL), types.float64, types.float64, types.uint32, collective=True
)


# --- conversions of the hardware: eight numbers to codes in 4 or 8 bits

# Two float32 to two minifloats, the first in the low byte. sm_89 and newer; saturates; NaN is 0x7F.
e4m3_pair = _binary(
    "cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", types.uint16, types.float32, types.float32
)
e5m2_pair = _binary(
    "cvt.rn.satfinite.e5m2x2.f32 $0, $2, $1;", types.uint16, types.float32, types.float32
)
# Eight float32 to eight E2M1, the first in the low bits. sm_100a and sm_120a; saturates.
e2m1_eight = _of_eight(
    "{ .reg .b8 a, b, c, d; cvt.rn.satfinite.e2m1x2.f32 a, $2, $1;"
    " cvt.rn.satfinite.e2m1x2.f32 b, $4, $3; cvt.rn.satfinite.e2m1x2.f32 c, $6, $5;"
    " cvt.rn.satfinite.e2m1x2.f32 d, $8, $7; mov.b32 $0, {a, b, c, d}; }",
    types.uint32,
    types.float32,
)


def _pack_four(kind):
    """Return the text that saturates four int32 and packs them into bytes."""
    return (
        f"{{ .reg .b32 t; cvt.pack.sat.{kind}.s32.b32 t, $4, $3, 0;"
        f" cvt.pack.sat.{kind}.s32.b32 $0, $2, $1, t; }}"
    )


def _four(text, result, operand):
    """Return an intrinsic of four operands."""
    emit = _emitter(text, result, (operand,) * 4)

    @intrinsic
    def instruction(_context, a, b, c, d):
        return result(a, b, c, d), emit

    return instruction


pack_four_s8 = _four(_pack_four("s8"), types.uint32, types.int32)
pack_four_u8 = _four(_pack_four("u8"), types.uint32, types.int32)


def _pack_eight(kind):
    """Return the text that saturates eight int32 and packs them, the first in the low bits."""
    return (
        f"{{ .reg .b32 t; cvt.pack.sat.{kind}.s32.b32 t, $8, $7, 0;"
        f" cvt.pack.sat.{kind}.s32.b32 t, $6, $5, t; cvt.pack.sat.{kind}.s32.b32 t, $4, $3, t;"
        f" cvt.pack.sat.{kind}.s32.b32 $0, $2, $1, t; }}"
    )


pack_eight_s4 = _of_eight(_pack_eight("s4"), types.uint32, types.int32)
pack_eight_u4 = _of_eight(_pack_eight("u4"), types.uint32, types.int32)
pack_eight_s2 = _of_eight(_pack_eight("s2"), types.uint32, types.int32)
pack_eight_u2 = _of_eight(_pack_eight("u2"), types.uint32, types.int32)
