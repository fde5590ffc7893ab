"""Moves: move(q).dequantize() is move(q.dequantize()), bit for bit, or the move is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import qnumba as qn
from qnumba.moves import InexactMoveError, concatenate, split, stack
from strategies import arrays, options_for, schemes
from support import assert_same_bits

SHAPES = st.one_of(
    st.tuples(st.integers(0, 70)),
    st.tuples(st.integers(0, 9), st.integers(1, 40)),
    st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(0, 18)),
    st.lists(st.integers(1, 4), min_size=4, max_size=5).map(tuple),
    st.just(()),
)


@st.composite
def quantized(draw, shapes=SHAPES):
    """Return a quantized array of any scheme, store and packed axis."""
    shape = draw(shapes)
    scheme = draw(schemes(len(shape)))
    numbers = draw(arrays(shape, nonfinite=scheme.value in {"E4M3", "E5M2"}))
    return qn.quantize(numbers, scheme, **draw(options_for(scheme)))


def block_numbers(q):
    """Return the number of every element's block, found without the code under test."""
    numbers = np.arange(q.scales.size).reshape(q.scales.shape)
    if q.scheme.block is None:
        return np.zeros(q.shape, int)
    block = (1,) * (q.ndim - len(q.scheme.block)) + q.scheme.block if q.ndim else ()
    places = [np.arange(extent) // step for extent, step in zip(q.shape, block, strict=True)]
    return numbers[np.ix_(*places)] if places else numbers


def follows(numbers, scheme):
    """Whether blocks of a scheme keep together what has one number, and apart what has not."""
    if scheme.block is None or numbers.size == 0:
        return True
    block = (1,) * (numbers.ndim - len(scheme.block)) + scheme.block
    if len(block) > numbers.ndim:
        return numbers.size == 1
    for axis, step in enumerate(block):
        starts = np.arange(0, numbers.shape[axis], step)
        least = np.minimum.reduceat(numbers, starts, axis)
        if (least != np.maximum.reduceat(numbers, starts, axis)).any():
            return False
        numbers = least
    return True


def check(q, move, numpy_move, *, regrouped=False):
    """Check one move of one array, and what is refused."""
    expected = numpy_move(q.dequantize())
    try:
        moved = move(q, {})
    except InexactMoveError as error:
        assert "requantize=True" in error.fix
        if "a block has at most 5 extents" in str(error):
            return
        if not regrouped:
            numbers = numpy_move(block_numbers(q))
            assert not follows(numbers, q.scheme), "the same scheme would do"
        check_requantized(q, move, expected)
        return
    assert moved.shape == expected.shape
    assert_same_bits(moved.dequantize(), expected, f"{q.scheme} {q.shape} -> {moved.scheme}")
    assert moved == qn.QArray.from_record(moved.to_record(), moved.scheme, moved.shape)
    assert moved.words.flags.c_contiguous
    assert not np.may_share_memory(moved.words, q.words)
    assert (moved.source_dtype, moved.options) == (q.source_dtype, q.options)
    for name in ("value", "mode", "store", "block_scale", "tensor_scale", "table"):
        assert getattr(moved.scheme, name) == getattr(q.scheme, name)


def check_requantized(q, move, expected):
    """Check that a refused move can be had by quantizing again, by the rules that made ``q``."""
    scheme = q.scheme
    if scheme.pack_axis >= max(expected.ndim, 1):
        scheme = scheme.replace(pack_axis=0)
    options = dict(word.split("=") for word in q.options.split())
    try:
        wanted = qn.quantize(expected, scheme, **options)
    except qn.QuantizationError as error:
        with pytest.raises(type(error)):
            move(q, {"requantize": True})
        return
    assert move(q, {"requantize": True}) == wanted


def slices(extent):
    ends = st.none() | st.integers(-extent - 1, extent + 1)
    steps = st.sampled_from([None, None, 1, 2, 3, 4, 8, -1, -1, -2, -5])
    return st.builds(slice, ends, ends, steps)


@given(st.data())
@pytest.mark.parametrize("aligned", [False, True])
def test_slices(aligned, data):
    q = data.draw(quantized())
    block = (1,) * (q.ndim - len(q.scheme.block or ())) + (q.scheme.block or ())
    key = []
    for extent, step in zip(q.shape, block if q.ndim else (), strict=False):
        part = data.draw(slices(extent))
        if aligned:
            low, high, _ = slice(part.start, part.stop).indices(extent)
            part = slice(low // step * step, high)
        key.append(
            data.draw(st.integers(-extent, extent - 1))
            if extent and data.draw(st.integers(0, 3)) == 0
            else part
        )
    key = key[: data.draw(st.integers(0, len(key)))]
    for _ in range(data.draw(st.integers(0, 1))):
        key.insert(data.draw(st.integers(0, len(key))), None)
    if data.draw(st.booleans()):
        key.append(...)
    check(
        q,
        lambda q, how: q.slice(tuple(key), **how),
        lambda x: x[tuple(key)],
        regrouped=None in key,
    )


@given(quantized(), st.data())
def test_flip(q, data):
    axis = data.draw(st.none() | st.sets(st.integers(0, q.ndim - 1)).map(tuple)) if q.ndim else None
    check(q, lambda q, how: q.flip(axis, **how), lambda x: np.flip(x, axis))


@given(quantized(), st.data())
def test_take(q, data):
    axis = data.draw(st.none() | st.integers(-q.ndim, q.ndim - 1)) if q.ndim else None
    extent = q.size if axis is None else q.shape[axis]
    shape = data.draw(st.sampled_from([(), (1,), (4,), (0,), (2, 3), (1, 4, 1), (9,)]))
    start, step = data.draw(st.integers(0, 40)), data.draw(st.sampled_from([0, 1, 2, 4, 16, -1]))
    if not extent:
        shape = (0,)
    count = int(np.prod(shape))
    indices = ((start + step * np.arange(count)) % max(extent, 1)).reshape(shape)
    if data.draw(st.booleans()):
        indices = indices - extent
    check(
        q,
        lambda q, how: q.take(indices, axis, **how),
        lambda x: np.take(x, indices, axis),
        regrouped=axis is None or len(shape) > 1,
    )


@given(quantized(), st.data())
def test_take_along_axis(q, data):
    if not q.ndim:
        return
    axis = data.draw(st.integers(-q.ndim, q.ndim - 1))
    shape = [extent if data.draw(st.booleans()) else 1 for extent in q.shape]
    shape[axis] = data.draw(st.sampled_from([1, 1, 2, 5, 16])) if q.shape[axis] else 0
    extent = max(q.shape[axis], 1)
    line = data.draw(st.integers(0, 20)) + data.draw(st.sampled_from([0, 1, 4, 8, -1])) * np.arange(
        shape[axis]
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    spread = data.draw(st.sampled_from([1, 1, 3, 16]))
    offsets = rng.integers(0, spread, [1 if n == axis % q.ndim else m for n, m in enumerate(shape)])
    lines = np.moveaxis(line[(...,) + (None,) * (q.ndim - 1)], 0, axis)
    indices = np.broadcast_to((lines + offsets) % extent, shape)
    check(
        q,
        lambda q, how: q.take_along_axis(indices, axis, **how),
        lambda x: np.take_along_axis(x, indices, axis),
    )


@given(quantized(), st.data())
def test_reshape(q, data):
    factors = [p for n in q.shape for p in prime_factors(n)] or [1]
    if data.draw(st.booleans()):
        factors = data.draw(st.permutations(factors))
    cuts = data.draw(st.sets(st.integers(1, len(factors)), max_size=4)) | {0, len(factors)}
    shape = [int(np.prod(factors[a:b])) for a, b in itertools.pairwise(sorted(cuts))]
    for _ in range(data.draw(st.integers(0, 1))):
        shape.insert(data.draw(st.integers(0, len(shape))), 1)
    if q.size and data.draw(st.booleans()):
        shape[data.draw(st.integers(0, len(shape) - 1))] = -1
    check(q, lambda q, how: q.reshape(shape, **how), lambda x: x.reshape(shape), regrouped=True)


def prime_factors(number):
    factors, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors + [0] * (number == 0)


@given(quantized(), st.data())
@example(qn.quantize(np.ones((3, 40), np.float32), "int4"), None)
def test_axes(q, data):
    order = list(data.draw(st.permutations(range(q.ndim)))) if data else [1, 0]
    new = sorted(data.draw(st.sets(st.integers(0, q.ndim), max_size=2))) if data else [2]
    places = tuple(place + number for number, place in enumerate(new))
    wide = tuple(3 if n == 1 else n for n in (2, *q.shape))
    for move, numpy_move in (
        (lambda q: q.transpose(order), lambda x: x.transpose(order)),
        (lambda q: q.T, lambda x: x.T),
        (lambda q: q.expand_dims(places), lambda x: np.expand_dims(x, places)),
        (lambda q: q.expand_dims(places).squeeze(places), lambda x: x),
        (lambda q: q.squeeze(), lambda x: x.squeeze()),
        (lambda q: q.broadcast_to(wide), lambda x: np.broadcast_to(x, wide)),
        (
            lambda q: q.swapaxes(0, -1) if q.ndim else q[...],
            lambda x: x.swapaxes(0, -1) if x.ndim else x,
        ),
    ):
        check(q, lambda q, _, move=move: move(q), numpy_move)


@given(st.data())
def test_parts_join_again(data):
    q = data.draw(quantized())
    if not q.ndim:
        return
    axis = data.draw(st.integers(-q.ndim, q.ndim - 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, q.shape[axis]), max_size=3)))
    if data.draw(st.booleans()):
        block = ((1,) * q.ndim + (q.scheme.block or ()))[-q.ndim :][axis]
        cuts = [cut // block * block for cut in cuts]
    expected = np.split(q.dequantize(), cuts, axis)
    try:
        parts = split(q, cuts, axis)
    except InexactMoveError:
        parts = split(q, cuts, axis, requantize=True)
        assert [part.shape for part in parts] == [part.shape for part in expected]
        return
    for part, numbers in zip(parts, expected, strict=True):
        assert_same_bits(part.dequantize(), numbers)
    check_joined(parts, axis, "concatenate")
    check_joined([q, q, q[...]], axis, "concatenate")
    check_joined([q, q.flip(requantize=True).flip(requantize=True)], None, "concatenate")
    check_joined([q, q], data.draw(st.integers(-q.ndim - 1, q.ndim)), "stack")


def check_joined(arrays, axis, name):
    join = {"concatenate": concatenate, "stack": stack}[name]
    expected = getattr(np, name)([q.dequantize() for q in arrays], axis)
    try:
        joined = join(arrays, axis)
    except InexactMoveError as error:
        assert "requantize=True" in error.fix or "5 extents" in str(error)
        again = requantized_or_none(join, arrays, axis)
        assert again is None or again.shape == expected.shape
        return
    assert_same_bits(joined.dequantize(), expected)
    assert joined == qn.QArray.from_record(joined.to_record(), joined.scheme, joined.shape)


def requantized_or_none(join, arrays, axis):
    try:
        return join(arrays, axis, requantize=True)
    except qn.QuantizationError:  # the scheme does not fit the new shape, or NaN was kept
        return None


@given(quantized())
def test_iterating_gives_the_parts(q):
    if not q.ndim:
        with pytest.raises(TypeError, match="without axes"):
            iter(q)
        return
    parts = list(q)
    assert len(parts) == len(q)
    for part, numbers in zip(parts, q.dequantize(), strict=True):
        assert_same_bits(part.dequantize(), np.asarray(numbers))
