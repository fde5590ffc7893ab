"""What dots of rows of codes are written with, in LLVM: chunks, spans, sums.

A row is read 64 bytes at a time: a *chunk*, 16 lanes of 32 bits, of 4, 8 or 16 codes each. Vectors
are laid out to match (``vectors.py``). What shares a scale along a row is a *span*: some chunks,
or, where blocks are shorter than a chunk, one chunk whose lanes fall into blocks of 8, 4, 2 or 1.

``tile`` is an array whose shape alone counts: the kind of dot, the bits of a code, and how many
rows and vectors are multiplied at once. It is known when a dot is compiled.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils

from qnumba.cpu.simd import FLOAT, I8, I32, I64, Lanes, call

LANES = 16
CHUNK = 64  # bytes
SPLITS = (16, 8, 4, 2, 1)  # lanes that share a scale
ROW = 32  # instead of a split: a row has one scale, and integers are summed to its end
AHEAD = 8192  # bytes to ask for before they are needed: the next row or two
FLOATS, WHOLES, BYTES = (
    ir.VectorType(kind, count) for kind, count in ((FLOAT, LANES), (I32, LANES), (I8, CHUNK))
)


def const(value):
    """Return a constant index."""
    return ir.Constant(I64, value)


def loop(builder, start, stop, step, body):
    """Call ``body(index)`` over a range."""
    with cgutils.for_range_slice(builder, start, stop, const(step)) as (index, _):
        body(index)


def total(builder, value):
    """Return the sum of all lanes, halves added to halves."""
    count, kind = value.type.count, value.type.element
    add = builder.add if kind == I32 else builder.fadd
    places = ir.VectorType(I32, count)
    half = count // 2
    while half:
        turned = ir.Constant(places, [(lane + half) % count for lane in range(count)])
        value = add(value, builder.shuffle_vector(value, value, turned))
        half //= 2
    return builder.extract_element(value, ir.Constant(I32, 0))


class Sums:
    """Vectors of sums in variables, which LLVM keeps in registers."""

    def __init__(self, builder, kind, count):
        self.builder = builder
        self.zero = ir.Constant(kind, None)
        self.places = [cgutils.alloca_once(builder, kind) for _ in range(count)]
        self.clear()

    def clear(self):
        """Set all sums to 0."""
        for place in self.places:
            self.builder.store(self.zero, place)

    def __getitem__(self, index):
        """Return a sum."""
        return self.builder.load(self.places[index])

    def __setitem__(self, index, value):
        """Replace a sum."""
        self.builder.store(value, self.places[index])

    def folded(self):
        """Return the sum of all, neighbours first."""
        left = [self[k] for k in range(len(self.places))]
        while len(left) > 1:
            left = [self.builder.fadd(*left[k : k + 2]) for k in range(0, len(left), 2)]
        return left[0]


class Dot:
    """The arguments of a dot, and what every kind of it does with them."""

    def __init__(self, context, builder, signature, args):
        self.context, self.builder = context, builder
        self.lanes = Lanes(builder, LANES)
        tile = signature.args[0]
        self.kind, self.bits, self.rows, self.vectors = tile.shape
        self.chunks, self.per_span, self.split, self.hop, self.flip, self.share = args[1:7]
        names = ("words", "starts", "firsts", "scales", "points", "x", "minus", "x_scales")
        arrays = {name: self._data(signature, args, 7 + k) for k, name in enumerate(names)}
        self.x, self.minus, self.x_scales = (arrays[name] for name in names[5:])
        self.points, self.vector = arrays["points"], args[15]
        self.out = self._data(signature, args, 16)
        place = [builder.load(builder.gep(arrays["starts"], [const(r)])) for r in range(self.rows)]
        self.lines = [builder.gep(arrays["words"], [start]) for start in place]
        first = [builder.load(builder.gep(arrays["firsts"], [const(r)])) for r in range(self.rows)]
        self.first, self.scales = first, [builder.gep(arrays["scales"], [at]) for at in first]

    def _data(self, signature, args, position):
        array = self.context.make_array(signature.args[position])
        return array(self.context, self.builder, args[position]).data

    def load(self, array, place, kind, align=4):
        """Return the lanes at ``array[place]``."""
        pointer = self.builder.gep(array, [place])
        return self.builder.load(self.builder.bitcast(pointer, kind.as_pointer()), align=align)

    def chunk(self, row, index):
        """Return 64 bytes of a row, sign bits flipped, and ask for some further on."""
        builder = self.builder
        start = builder.mul(index, const(CHUNK))
        hints = [ir.Constant(I32, hint) for hint in (0, 3, 1)]  # read, keep near, data
        ahead = builder.gep(self.lines[row], [builder.add(start, const(AHEAD))])
        call(builder, "llvm.prefetch.p0", ir.VoidType(), ahead, *hints)
        chunk = self.load(self.lines[row], start, WHOLES, align=1)
        return builder.xor(chunk, self.lanes.splat(self.flip))

    def beside(self, vector, index, step, steps):
        """Return where the numbers are that meet step ``step`` of a chunk."""
        builder = self.builder
        chunk = builder.mul(builder.add(self.vector, const(vector)), self.chunks)
        chunk = builder.mul(builder.add(chunk, index), const(steps * LANES))
        return builder.add(chunk, const(step * LANES))

    def scale(self, row, span, split):
        """Return the scales of a span of a row, each in the lanes it belongs to."""
        builder = self.builder
        if split in {LANES, ROW}:
            number = builder.load(builder.gep(self.scales[row], [span]))
            return self.lanes.splat(builder.fmul(number, self.share))
        count = LANES // split
        kind = ir.VectorType(FLOAT, count)
        few = self.load(self.scales[row], builder.mul(span, const(count)), kind)
        few = builder.fmul(few, Lanes(builder, count).splat(self.share))
        places = ir.Constant(WHOLES, [lane // split for lane in range(LANES)])
        return builder.shuffle_vector(few, few, places)

    def spans(self, split, before, each, after):
        """Go through the spans of a row, and the chunks of each."""
        builder = self.builder

        def span(index):
            state = before(index)
            if split in {LANES, ROW}:
                start = builder.mul(index, self.per_span)
                stop = builder.add(start, self.per_span)
                is_last = builder.icmp_signed("<", self.chunks, stop)
                stop = builder.select(is_last, self.chunks, stop)
                loop(builder, start, stop, 1, lambda chunk: each(state, chunk))
            else:
                each(state, index)
            after(state)

        count = self.chunks
        if split in {LANES, ROW}:
            count = builder.sub(builder.add(count, self.per_span), const(1))
            count = builder.sdiv(count, self.per_span)
        loop(builder, const(0), count, 1, span)

    def by_split(self, splits, body):
        """Call ``body(split)`` for the number of lanes that share a scale, each in its own code."""
        builder = self.builder
        done = builder.append_basic_block("done")
        switch = builder.switch(self.split, done)
        for split in splits:
            block = builder.append_basic_block(f"split{split}")
            switch.add_case(const(split), block)
            builder.position_at_end(block)
            body(split)
            builder.branch(done)
        builder.position_at_end(done)

    def store(self, place, value):
        """Write one result."""
        self.builder.store(value, self.builder.gep(self.out, [const(place)]))
