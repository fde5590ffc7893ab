"""Which moves are exact, and which are refused in what words."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qnumba as qn
from qnumba.layout import plan
from qnumba.moves import InexactMoveError, concatenate, split, stack
from qnumba.moves.blocks import Axis, regroup, runs_of_indices, runs_of_range
from support import assert_same_bits

X = np.random.default_rng(0).normal(size=(6, 80)).astype(np.float32)
Q = qn.quantize(X, "Q4S block=16:F16")
PARTIAL = qn.quantize(X[:, :72], "Q4S block=16:F16")  # four blocks and a half
RECTANGLES = qn.quantize(X, "Q8S block=2x16:F16")
TENSOR = qn.quantize(X, "Q4S")
TWO = qn.quantize(X, "nvfp4")


def partition(shape, block):
    """Return the number of every element's block, in flat order."""
    grid = [-(-n // b) for n, b in zip(shape, block, strict=True)]
    numbers = np.arange(int(np.prod(grid))).reshape(grid)
    places = [np.arange(n) // b for n, b in zip(shape, block, strict=True)]
    return numbers[np.ix_(*places)].reshape(-1)


SMALL = st.lists(st.integers(1, 8), min_size=1, max_size=3).map(tuple)


@given(SMALL, st.data())
def test_a_reshape_is_exact_whenever_any_block_shape_is(shape, data):
    block = tuple(data.draw(st.integers(1, n)) for n in shape)
    size = int(np.prod(shape))
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    first = data.draw(st.sampled_from(divisors))
    second = data.draw(st.sampled_from([n for n in divisors if (size // first) % n == 0]))
    new = (first, second, size // first // second)
    numbers = partition(shape, block)
    fitting = [
        extents
        for extents in itertools.product(*(range(1, n + 1) for n in new))
        if np.array_equal(partition(new, extents), numbers)
    ]
    layout = plan(qn.Scheme("Q8S", block=block), shape)
    try:
        found = regroup(layout, new)
    except InexactMoveError:
        assert not fitting
    else:
        assert tuple(np.minimum(found, new)) in fitting


@given(st.integers(1, 40), st.integers(1, 12), st.data())
def test_the_runs_of_a_slice_are_those_of_its_positions(extent, block, data):
    ends = st.integers(-extent, extent) | st.none()
    step = data.draw(st.integers(1, 14)) * data.draw(st.sampled_from([1, -1]))
    positions = range(extent)[data.draw(ends) : data.draw(ends) : step]
    found = runs_of_range(positions, block)
    wanted = runs_of_indices(np.array(positions, np.int64), block)
    np.testing.assert_array_equal(found.blocks, wanted.blocks)
    np.testing.assert_array_equal(found.ends, wanted.ends)
    axis = Axis(extent, data.draw(st.sampled_from([block, block + 50])), block)
    chosen = found.extent(axis)
    numbers = np.array(positions, np.int64) // block
    follows = {
        step: all(len(set(numbers[at : at + step])) == 1 for at in range(0, len(numbers), step))
        for step in range(1, extent + 70)
    }
    if follows[axis.declared] or follows[axis.block]:
        assert chosen == (axis.declared if follows[axis.declared] else axis.block)
    elif chosen is not None:
        assert follows[chosen]
        assert abs(step) > 1
        counts = [len(list(group)) for _, group in itertools.groupby(numbers)]
        assert set(counts[:-1]) == {chosen}
    if chosen is not None:
        np.testing.assert_array_equal(found.at(chosen), numbers[::chosen])


# What is done, the block of the result (None: as it was) and how many scales it has.
EXACT = {
    "a slice at a block's edge": (lambda: Q[:, 16:], None, 24),
    "a slice that ends inside a block": (lambda: Q[:, 16:40], None, 12),
    "a slice within one block": (lambda: Q[:, 3:9], None, 6),
    "rows": (lambda: Q[1:5:3], None, 10),
    "one row": (lambda: Q[2], None, 5),
    "one row of rectangles": (lambda: RECTANGLES[3], (16,), 5),
    "one column": (lambda: Q[:, 5], (1,), 6),
    "every second": (lambda: Q[:, ::2], (8,), 30),
    "one of every block": (lambda: Q[:, 3::16], (1,), 30),
    "single elements": (lambda: Q.take([3, 70, 20], 1), (1,), 18),
    "neighbours across an edge": (lambda: Q.take([16, 15], 1), (1,), 12),
    "blocks in another order": (lambda: Q.take([*range(32, 48), *range(16)], 1), None, 12),
    "blocks repeated": (lambda: Q.take([5] * 16 + [20] * 16, 1), None, 12),
    "flip": (lambda: Q.flip(), None, 30),
    "flip of rows": (lambda: PARTIAL.flip(0), None, 30),
    "transpose": (lambda: RECTANGLES.T, (16, 2), 15),
    "blocks to rows": (lambda: Q.reshape(30, 16), None, 30),
    "rows to one axis": (lambda: Q.reshape(-1), None, 30),
    "a block becomes two rows": (lambda: Q.reshape(60, 8), (2, 8), 30),
    "partial blocks stay in their rows": (lambda: PARTIAL.reshape(2, 3, 72), None, 30),
    "partial blocks of whole rows": (
        lambda: qn.quantize(X[:5], "Q8S block=2x80").reshape(400),
        (160,),
        3,
    ),
    "one block a row": (lambda: qn.quantize(X, "Q8S block=4096").reshape(-1), (80,), 6),
    "joined after whole blocks": (lambda: concatenate([Q, PARTIAL], 1), None, 60),
    "joined rows": (lambda: concatenate([PARTIAL, PARTIAL]), None, 60),
    "joined rectangles": (lambda: concatenate([RECTANGLES, RECTANGLES]), None, 30),
    "one block each": (lambda: concatenate([Q[:, :9], Q[:, 16:25]], 1), (9,), 12),
    "stacked": (lambda: stack([PARTIAL, PARTIAL], 1), None, 60),
    "the tensor's scale": (lambda: TENSOR[:, 3:8].T.reshape(-1), None, 1),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_moves_keep_the_block_or_a_smaller_one(name):
    move, block, scales = EXACT[name]
    moved = move()
    assert moved.scales.size == scales
    if block is not None:
        assert moved.scheme.block == block
    else:
        assert moved.scheme in {
            Q.scheme,
            RECTANGLES.scheme,
            TENSOR.scheme,
            TENSOR.scheme.replace(pack_axis=1),
        }


INEXACT = {
    "a slice inside": (
        lambda **how: Q.slice(np.s_[:, 3:40], **how),
        (
            "the slice would split blocks of 16 along axis 1 of extent 80; start at a multiple of 16, "
            "such as 0 or 16, or pass requantize=True"
        ),
    ),
    "half a block": (
        lambda **how: Q.slice(np.s_[:, 24:56], **how),
        "start at a multiple of 16, such as 16 or 32",
    ),
    "a reversed slice": (
        lambda **how: Q.slice(np.s_[:, 40::-1], **how),
        "start just before a multiple of 16, such as 32 or 48",
    ),
    "unequal steps": (
        lambda **how: Q.slice(np.s_[:, ::3], **how),
        "take a step that divides 16 or is a multiple of it, from a block's edge",
    ),
    "flip of a partial block": (
        lambda **how: PARTIAL.flip(1, **how),
        "flip would split blocks of 16 along axis 1 of extent 72, whose last block holds 8",
    ),
    "unequal numbers": (
        lambda **how: Q.take([1, 20, 21, 22], 1, **how),
        (
            "take would split blocks of 16 along axis 1 of extent 80; take whole blocks, or equally "
            "many positions from every block"
        ),
    ),
    "rows of rectangles": (
        lambda **how: RECTANGLES.slice(np.s_[1:5], **how),
        "the slice would split blocks of 2 along axis 0 of extent 6; start at a multiple of 2",
    ),
    "lines of a rectangle": (
        lambda **how: RECTANGLES.take_along_axis(np.array([[0], [20], [0], [0], [0], [0]]), **how),
        "take_along_axis would split blocks of 2 along axis 0; take the same blocks of axis 1",
    ),
    "a gather of unequal numbers": (
        lambda **how: Q.take_along_axis(np.array([[0, 20, 21]]), **how),
        "take_along_axis would split blocks of 16 along axis 1",
    ),
    "a reshape that cuts": (
        lambda **how: Q.reshape(20, 24, **how),
        (
            "reshaping (6, 80) to (20, 24) would split a block of (1, 16) at the new axis 0 of extent "
            "20; let every new axis hold a whole number of blocks, or divide one"
        ),
    ),
    "a reshape of partial blocks": (
        lambda **how: PARTIAL.reshape(-1, **how),
        "axis 1 of extent 72 ends in a partial block (a multiple of 16 would not); keep that axis",
    ),
    "after a partial block": (
        lambda **how: concatenate([PARTIAL, Q], 1, **how),
        (
            "array 0 ends in a partial block along axis 1: 72 is not a multiple of 16; join after "
            "whole blocks only, or pass requantize=True"
        ),
    ),
    "other scales": (
        lambda **how: concatenate([TENSOR, qn.quantize(2 * X, "Q4S")], **how),
        (
            "the arrays differ in the scale or zero point of the whole array ('Q4S'); quantize them "
            "with the same params=, or pass requantize=True"
        ),
    ),
    "other zero points": (
        lambda **how: concatenate(
            [qn.quantize([[0.0, 255.0]], "U8 affine"), qn.quantize([[-255.0, 0.0]], "U8 affine")],
            **how,
        ),
        "the scale or zero point",
    ),
    "other global scales": (
        lambda **how: stack([TWO, qn.quantize(2 * X, "nvfp4")], **how),
        "the arrays differ in the global scale ('E2M1 block=16:UE4M3 tensor=F32')",
    ),
    "other schemes": (
        lambda **how: concatenate([Q, TENSOR], **how),
        "arrays of the schemes 'Q4S block=16:F16' and 'Q4S' do not join; bring all to one scheme",
    ),
    "a part of a split": (
        lambda **how: split(Q, [10, 32], 1, **how)[1],
        "the slice would split blocks of 16",
    ),
}


@pytest.mark.parametrize("name", INEXACT)
def test_what_would_split_a_block_is_refused_and_can_be_requantized(name):
    move, message = INEXACT[name]
    with pytest.raises(InexactMoveError) as refused:
        move()
    assert message in str(refused.value)
    assert isinstance(refused.value, qn.SchemeError)
    assert refused.value.field
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
    again = move(requantize=True)
    assert again.scheme.value in {Q.scheme.value, RECTANGLES.scheme.value, TWO.scheme.value, "U8"}


def test_requantizing_uses_the_rules_that_made_the_array():
    q = qn.quantize(X, "Q8S block=16:F32", rounding="away", method="absmean")
    again = q.slice(np.s_[:, 3:], requantize=True)
    assert again == qn.quantize(q.dequantize()[:, 3:], q.scheme, rounding="away", method="absmean")
    assert again.options == q.options
    joined = concatenate([q, Q.requantize(q.scheme)])
    assert joined.options == ""
    unknown = qn.QArray.from_record(q.to_record(), q.scheme, q.shape)
    assert unknown.slice(np.s_[:, 3:], requantize=True) == qn.quantize(
        q.dequantize()[:, 3:], q.scheme
    )


def test_a_block_with_too_many_extents_is_refused():
    q = qn.quantize(np.ones((2, 1, 1, 1, 1, 32), np.float32), "int4")
    with pytest.raises(InexactMoveError, match="the result needs blocks of .* at most 5 extents"):
        q.swapaxes(0, -1)
    assert q.swapaxes(1, -1).scheme.block == (32, 1, 1, 1, 1)
    single = qn.quantize(np.ones((1, 1, 1, 1, 1), np.float32), "Q8S block=2x1x1x1x1")
    assert single.expand_dims(-1).scheme.block == (1,)  # an extent longer than its axis is moot


BAD = {
    "too many": (lambda: Q[0, 0, 0], IndexError, "3 parts is too much"),
    "ellipses": (lambda: Q[..., ...], IndexError, "2 ellipses"),
    "outside": (lambda: Q[6], IndexError, "index 6 is out of bounds for axis 0 of extent 6"),
    "outside, negative": (lambda: Q[:, -81], IndexError, "axis 1 of extent 80"),
    "a list": (lambda: Q[[1, 2]], qn.QuantizedTypeError, r"not list; q\.take"),
    "a mask": (lambda: Q[X > 0], qn.QuantizedTypeError, r"not ndarray; q\.take"),
    "a bool": (lambda: Q[True], qn.QuantizedTypeError, "not bool"),
    "a float": (lambda: Q[1.0], qn.QuantizedTypeError, "not float"),
    "take outside": (lambda: Q.take([0, 6], 0), IndexError, "index 6 is out of bounds"),
    "take floats": (lambda: Q.take([0.5], 0), qn.QuantizedTypeError, "dtype float64; give int"),
    "gather shape": (lambda: Q.take_along_axis([1]), qn.SchemeError, "give 2 axes"),
    "gather other": (
        lambda: Q.take_along_axis(np.zeros((5, 1), int)),
        qn.SchemeError,
        "do not fit",
    ),
    "no axis": (lambda: Q.flip(2), np.exceptions.AxisError, "axis 2 is out of bounds"),
    "twice": (lambda: Q.flip((0, -2)), qn.SchemeError, "name one axis twice"),
    "transposed twice": (lambda: Q.transpose(0, 0), qn.SchemeError, "name one axis twice"),
    "axes of text": (lambda: np.flip(Q, "a"), qn.QuantizedTypeError, "'a' names no axis"),
    "half an axis": (lambda: Q.take([0], 0.5), qn.QuantizedTypeError, "0.5 names no axis"),
    "a true axis": (lambda: Q.argmax(True), qn.QuantizedTypeError, "True names no axis"),  # noqa: FBT003
    "sorted by text": (lambda: np.sort(Q, "a"), qn.QuantizedTypeError, "'a' names no axis"),
    "joined by text": (lambda: concatenate([Q], "a"), qn.QuantizedTypeError, "names no axis"),
    "size by text": (lambda: np.size(Q, "a"), qn.QuantizedTypeError, "'a' names no axis"),
    "moved apart": (lambda: np.moveaxis(Q, 0, (0, 1)), qn.SchemeError, "do not go to 2 places"),
    "a slice of text": (lambda: Q["a":], qn.QuantizedTypeError, "no slice of an axis"),
    "no step": (lambda: Q[::0], qn.SchemeError, "a slice has step 0"),
    "ragged indices": (lambda: Q.take([[1], [1, 2]], 0), qn.QuantizedTypeError, "not convert"),
    "masked indices": (
        lambda: Q.take(np.ma.masked_equal([0, 1], 1), 0),
        qn.QuantizedTypeError,
        "masked",
    ),
    "half an extent": (lambda: Q.reshape(6.5, 80), qn.SchemeError, "has no shape"),
    "text extents": (lambda: Q.reshape("480"), qn.SchemeError, r"no shape \('480',\)"),
    "true extents": (lambda: Q.reshape(True, 480), qn.SchemeError, "has no shape"),  # noqa: FBT003
    "ragged extents": (lambda: Q.reshape([[6], [8, 0]]), qn.SchemeError, "has no shape"),
    "65 axes": (lambda: Q.reshape([1] * 63 + [6, 80]), qn.SchemeError, "at most 64 axes"),
    "65 new axes": (lambda: Q[(None,) * 63], qn.SchemeError, "at most 64 axes"),
    "too large": (lambda: Q[:0].broadcast_to((2**59, 0, 80)), qn.SchemeError, "2\\*\\*60"),
    "reshape": (lambda: Q.reshape(7, 7), qn.SchemeError, "480 elements has no shape"),
    "two unknown": (lambda: Q.reshape(-1, -1), qn.SchemeError, "one of them may be -1"),
    "no divisor": (lambda: Q.reshape(7, -1), qn.SchemeError, "product is 480"),
    "no permutation": (lambda: Q.transpose(0), qn.SchemeError, "not a permutation of 2 axes"),
    "squeeze": (lambda: Q.squeeze(0), qn.SchemeError, r"axes \[0\] are longer than 1"),
    "broadcast": (lambda: Q.broadcast_to((6, 81)), qn.SchemeError, "does not broadcast"),
    "fewer axes": (lambda: Q.broadcast_to(80), qn.SchemeError, "does not broadcast"),
    "unequal parts": (lambda: split(Q, 7, 1), qn.SchemeError, "has no 7 equal parts"),
    "parts of text": (lambda: np.split(Q, "a"), qn.SchemeError, "no 'a' equal parts"),
    "half a cut": (lambda: split(Q, [2.5]), qn.SchemeError, "positions to cut at"),
    "half a place": (lambda: Q.topk(1.5), qn.SchemeError, "k is 1.5; give a number"),
    "one thing": (lambda: concatenate(5), qn.QuantizedTypeError, "got int; quantize"),
    "nothing": (lambda: concatenate([]), qn.SchemeError, "nothing to concatenate"),
    "a plain array": (lambda: concatenate([Q, X]), qn.QuantizedTypeError, "got ndarray; quantize"),
    "shapes": (lambda: concatenate([Q, Q[:5]], 1), qn.SchemeError, "agree in all extents but"),
    "ranks": (lambda: concatenate([Q, Q[0]]), qn.SchemeError, r"\(6, 80\), \(80,\)"),
    "stacked shapes": (lambda: stack([Q, Q[:5]]), qn.SchemeError, "let them have one shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_makes_no_sense_is_refused(name):
    call, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        call()


def test_a_move_shares_no_memory_that_can_be_written():
    q = qn.quantize(X, "Q8S")
    row, flat = q[1:2], q.reshape(-1)
    before = row.dequantize(), flat.dequantize()
    qn.quantize(-X, "Q8S", out=q)
    assert_same_bits(row.dequantize(), before[0])
    assert_same_bits(flat.dequantize(), before[1])
    read = qn.QArray.from_bytes(q.to_bytes())
    assert np.may_share_memory(read.reshape(-1).words, read.words)  # nobody can write to these


class OnDevice:
    """Words that say they are on a GPU."""

    __cuda_array_interface__ = ()


@pytest.mark.parametrize(
    "move",
    [
        lambda q: q[0],
        lambda q: q.reshape(-1, requantize=True),
        lambda q: concatenate([q, q]),
        lambda q: q.requantize("int8"),
        lambda q: q.astype_scheme(store="native"),
        lambda q: q.argmax(),
        lambda q: np.sort(q),
    ],
)
def test_arrays_on_a_device_are_refused(move):
    layout = plan(Q.scheme, Q.shape)
    q = qn.QArray(layout, OnDevice(), Q.params, source_dtype="float32")
    with pytest.raises(qn.UnsupportedSchemeError, match=r"call q\.to_host\(\) first"):
        move(q)


def test_an_unfinished_array_does_not_move():
    q = qn.quantize(X, "Q8S")
    with pytest.raises(qn.DataError):
        qn.quantize(np.full_like(X, np.nan), "Q8S", out=q)
    for move in (lambda: q[0], lambda: q.T, lambda: q.reshape(-1), lambda: concatenate([q, q])):
        with pytest.raises(qn.SchemeError, match="did not finish"):
            move()
