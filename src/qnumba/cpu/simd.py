"""The pieces that loops over runs of values are written with, in LLVM.

Auto-vectorisation gives up on short inner loops, so these loops are written out: whole vectors
first, then single values. The other ``simd_`` files hold the loops; ``runs.py`` and ``dots.py``
state each in plain NumPy and bind it to its name.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from llvmlite import binding, ir
from numba.core import cgutils, config, types

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()


class Real(NamedTuple):
    """A compute type: its LLVM type, the integer of its size, its mantissa bits and its lanes."""

    kind: ir.Type
    bits: ir.IntType
    mantissa: int
    lanes: int

    @property
    def magnitude_mask(self) -> int:
        """Every bit but the sign."""
        return (1 << (self.bits.width - 1)) - 1

    @property
    def exponent_mask(self) -> int:
        """The bits of the exponent."""
        return self.magnitude_mask - ((1 << self.mantissa) - 1)

    @property
    def almost_half(self) -> float:
        """The number before 0.5: added before truncation, it lets ties and more go up."""
        return 0.5 - 0.5 ** (self.mantissa + 2)


REALS = {types.float32: Real(FLOAT, I32, 23, 16), types.float64: Real(DOUBLE, I64, 52, 8)}


class Lanes:
    """A builder that writes the same arithmetic for one value or for a vector of them."""

    def __init__(self, builder, width):
        self.builder = builder
        self.width = width

    def of(self, kind):
        """Return the type that holds ``kind`` in every lane."""
        return kind if self.width == 1 else ir.VectorType(kind, self.width)

    def fill(self, kind, number):
        """Return a constant in every lane."""
        return ir.Constant(self.of(kind), number if self.width == 1 else [number] * self.width)

    def splat(self, value):
        """Return a runtime value in every lane."""
        if self.width == 1:
            return value
        empty = ir.Constant(self.of(value.type), ir.Undefined)
        first = self.builder.insert_element(empty, value, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, empty, self.fill(I32, 0))

    def load(self, pointer, index):
        """Return the lanes at ``pointer[index]``."""
        return self.builder.load(self._at(pointer, index), align=size_of(pointer.type.pointee))

    def store(self, value, pointer, index):
        """Write the lanes to ``pointer[index]``."""
        place = self._at(pointer, index)
        self.builder.store(value, place, align=size_of(pointer.type.pointee))

    def _at(self, pointer, index):
        place = self.builder.gep(pointer, [index])
        kind = self.of(pointer.type.pointee)
        return self.builder.bitcast(place, kind.as_pointer())

    def call(self, name, *operands):
        """Call an LLVM intrinsic that takes and returns lanes of one type."""
        kind = operands[0].type
        return call(self.builder, f"llvm.{name}.{suffix(kind)}", kind, *operands)

    def least(self, value, high):
        """Return the value, or ``high`` where that is less."""
        builder = self.builder
        return builder.select(builder.fcmp_ordered(">", value, high), high, value)

    def clamp(self, value, low, high):
        """Return the value within two ends. NaN stays NaN."""
        builder = self.builder
        return self.least(builder.select(builder.fcmp_ordered("<", value, low), low, value), high)

    def quotient(self, real, value, scale, inverse):
        """Return the correctly rounded value / scale, or zeros where the scale is 0.

        ``inverse`` is the rounded 1 / scale, or 0. One step of Newton's method on the remainder,
        which a fused multiply-add leaves exact, rounds correctly for every divisor whose inverse
        is (N. Brisebarre, J.-M. Muller, S. K. Raina, IEEE Trans. Comput. 53 (2004), 1069), as
        long as nothing comes near the subnormals; where the product overflows, what comes out is
        not finite. It takes a third of a division.
        """
        builder = self.builder
        if real.kind == FLOAT and has_fma():
            guess = builder.fmul(value, inverse)
            rest = self.call("fma", builder.fneg(guess), scale, value)
            return self.call("fma", rest, inverse, guess)
        is_zero = builder.fcmp_ordered("==", scale, self.fill(real.kind, 0))
        return builder.fdiv(
            value, builder.select(is_zero, self.fill(real.kind, float("inf")), scale)
        )

    def multiply_add(self, value, factor, term):
        """Return value * factor + term, where the product is exact."""
        if has_fma():
            return self.call("fma", value, factor, term)
        return self.builder.fadd(self.builder.fmul(value, factor), term)

    def top(self, values):
        """Return the largest of unsigned integers."""
        kind = values.type
        return call(self.builder, f"llvm.vector.reduce.umax.{suffix(kind)}", kind.element, values)

    def maxima(self, vectors):
        """Return the largest of each vector, of as many as there are lanes, lane by lane."""
        width, builder = self.width, self.builder
        step = 1
        while len(vectors) > 1:
            left = [k - step + width if k & step else k for k in range(width)]
            right = [k + width if k & step else k + step for k in range(width)]
            indices = [ir.Constant(self.of(I32), places) for places in (left, right)]
            vectors = [
                self.call("umax", *(builder.shuffle_vector(a, b, places) for places in indices))
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
            step *= 2
        return vectors[0]


@cache
def has_fma():
    """Return whether the processor that is compiled for multiplies and adds with one rounding."""
    if not binding.get_process_triple().startswith(("x86", "i386", "i686")):
        return True
    if config.CPU_FEATURES is not None:
        return "+fma" in config.CPU_FEATURES.split(",")
    return config.CPU_NAME is None and binding.get_host_cpu_features().get("fma", False)


def size_of(kind):
    """Return the bytes of a scalar type."""
    return {HALF: 2, FLOAT: 4, DOUBLE: 8}.get(kind) or kind.width // 8


def suffix(kind):
    """Return the letters LLVM adds to the name of an overloaded intrinsic."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    return {HALF: "f16", FLOAT: "f32", DOUBLE: "f64"}.get(kind) or f"i{kind.width}"


def call(builder, name, result, *operands):
    """Call an external function by name."""
    shape = ir.FunctionType(result, [operand.type for operand in operands])
    function = cgutils.get_or_insert_function(builder.module, shape, name)
    return builder.call(function, operands)


def data(context, builder, signature, args, position, offset):
    """Return the pointer to an array argument's element at an offset argument."""
    array = context.make_array(signature.args[position])(context, builder, args[position])
    return builder.gep(array.data, [args[offset]])


def sweep(builder, count, widths, body):
    """Call ``body(lanes, index)`` over 0..count, with the widest vectors as far as they reach."""
    start = ir.Constant(count.type, 0)
    for width in widths:
        stop = builder.and_(count, ir.Constant(count.type, -width))
        with cgutils.for_range_slice(builder, start, stop, ir.Constant(count.type, width)) as (
            index,
            _,
        ):
            body(Lanes(builder, width), index)
        start = stop


def sweep_runs(builder, runs, length, each, pointers, widths, body, prepare=None):
    """Call ``body(lanes, index, *beside)`` over runs, with what stands beside them at ``pointers``.

    Element r of a pointer stands beside the r-th run of ``length`` values; where ``each``, element
    i beside value i. Where there are several runs, their length is a number of whole vectors.
    ``prepare(lanes, *elements)`` makes of the elements, once a run, what the body takes.
    """
    prepare = prepare or (lambda _lanes, *elements: elements)
    size = builder.mul(runs, length)
    with builder.if_else(each) as (own, shared):
        with own:
            sweep(
                builder,
                size,
                widths,
                lambda lanes, i: body(
                    lanes, i, *prepare(lanes, *[lanes.load(p, i) for p in pointers])
                ),
            )
        with shared:
            _sweep_shared(builder, size, length, pointers, widths, body, prepare)


def _sweep_shared(builder, size, length, pointers, widths, body, prepare):
    """Call ``body`` over runs in one loop, which takes what stands beside where a run starts."""
    zero, one = (ir.Constant(I64, number) for number in (0, 1))
    run, border = (cgutils.alloca_once_value(builder, zero) for _ in range(2))
    beside = []

    def at(lanes, index):
        elements = [builder.load(builder.gep(pointer, [index])) for pointer in pointers]
        return prepare(lanes, *map(lanes.splat, elements))

    def wide_body(lanes, index):
        with builder.if_then(builder.icmp_signed("==", index, builder.load(border))):
            number = builder.load(run)
            values = at(lanes, number)
            beside.extend(cgutils.alloca_once(builder, value.type) for value in values)
            for place, value in zip(beside, values, strict=True):
                builder.store(value, place)
            builder.store(builder.add(number, one), run)
            builder.store(builder.add(index, length), border)
        body(lanes, index, *[builder.load(place) for place in beside])

    def any_body(lanes, index):
        if lanes.width > 1:
            wide_body(lanes, index)
        else:  # the end of the only run
            body(lanes, index, *at(lanes, zero))

    sweep(builder, size, widths, any_body)


def prefetch(builder, pointer, index):
    """Ask for the cache line of ``pointer[index]``; a place past the end does no harm."""
    line = builder.bitcast(builder.gep(pointer, [index]), I8.as_pointer())
    read, near, is_data = (ir.Constant(I32, value) for value in (0, 3, 1))
    call(builder, "llvm.prefetch.p0", ir.VoidType(), line, read, near, is_data)


def as_real(builder, lanes, real, value):
    """Return float32 lanes in a compute type."""
    return value if real.kind == FLOAT else builder.fpext(value, lanes.of(real.kind))


def as_kind(builder, real, number):
    """Return a float64 argument in a compute type."""
    return builder.fptrunc(number, FLOAT) if real.kind == FLOAT else number


def bits_of(builder, real, number):
    """Return the bits of a float64 argument in a compute type."""
    return builder.bitcast(as_kind(builder, real, number), real.bits)
