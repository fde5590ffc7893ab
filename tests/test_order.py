"""Comparisons: what NumPy and a stable sort find among the decoded numbers."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qnumba as qn
from qnumba import order
from strategies import arrays, options_for, schemes
from support import assert_same_bits

SHAPES = st.one_of(
    st.tuples(st.integers(1, 70)),
    st.tuples(st.integers(1, 9), st.integers(1, 40)),
    st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 12)),
    st.just(()),
)


@pytest.fixture(params=[1 << 22, 40, 7, 1])
def piece(request, monkeypatch):
    """Arrays are read in pieces of very different sizes."""
    monkeypatch.setattr(order, "PIECE", request.param)
    return request.param


@st.composite
def quantized(draw):
    """Return an array of any scheme; most have equal numbers, some NaN and infinity."""
    shape = draw(SHAPES)
    scheme = draw(schemes(len(shape)))
    if draw(st.booleans()):
        rng = np.random.default_rng(draw(st.integers(0, 999)))
        numbers = rng.integers(-3, 4, shape).astype(np.float32)
    else:
        numbers = draw(arrays(shape, nonfinite=scheme.value in {"E4M3", "E5M2"}))
    return qn.quantize(numbers, scheme, **draw(options_for(scheme)))


@given(q=quantized(), data=st.data())
def test_extremes_are_those_of_numpy(piece, q, data):
    axis = data.draw(st.none() | st.integers(-q.ndim, q.ndim - 1)) if q.ndim else None
    keepdims = data.draw(st.booleans())
    x = q.dequantize()
    for name in ("argmax", "argmin"):
        found = getattr(q, name)(axis, keepdims=keepdims)
        assert_same_bits(found, getattr(np, name)(x, axis, keepdims=keepdims), f"{name} {piece}")
    for name in ("max", "min"):
        found = getattr(q, name)(axis, keepdims=keepdims)
        expected = getattr(np, name)(x, axis, keepdims=keepdims)
        assert type(found) is type(expected)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)  # the sign of 0 is NumPy's own choice


def ranked(x, axis, *, largest):
    """Return where numbers stand in descending or ascending order, NaN above all, ties in order."""
    above = np.where(np.isnan(x), 1, 0)
    size = np.where(np.isnan(x), 0, x).astype(np.float64)
    keys = (-size, -above) if largest else (size, above)
    return np.lexsort(keys, axis=axis)


@given(q=quantized(), data=st.data())
def test_topk_is_the_start_of_a_stable_sort(piece, q, data):
    if not q.ndim:
        return
    axis = data.draw(st.none() | st.integers(-q.ndim, q.ndim - 1))
    largest = data.draw(st.booleans())
    x = q.dequantize().reshape(-1) if axis is None else q.dequantize()
    along = -1 if axis is None else axis
    k = data.draw(st.integers(0, x.shape[along]))
    values, indices = q.topk(k, axis, largest=largest)
    expected = np.take(ranked(x, along, largest=largest), np.arange(k), along)
    assert_same_bits(indices, expected)
    assert_same_bits(values, np.take_along_axis(x, expected, along))


@given(quantized(), st.data())
def test_sort_is_that_of_numpy(q, data):
    axis = data.draw(st.none() | st.integers(-q.ndim, q.ndim - 1)) if q.ndim else None
    x = q.dequantize()
    np.testing.assert_array_equal(q.sort(axis), np.sort(x, axis))
    assert q.sort(axis).dtype == np.float32
    assert_same_bits(q.argsort(axis), np.argsort(x, axis, kind="stable"))


def test_blocks_are_compared_by_their_numbers_and_not_by_their_codes():
    x = np.array([[0.001, 0.001, 5.0, 4.0], [9.0, 9.0, 0.5, 0.25]], np.float32)
    q = qn.quantize(x, "Q8S block=2:F32")
    assert (q.codes() == 127).sum() == 6
    assert q.argmax(1).tolist() == [2, 0]
    assert q.argmin(1).tolist() == [0, 3]
    assert q.argmax() == 4
    assert_same_bits(q.max(0), q.dequantize().max(0))
    values, indices = q.topk(2)
    assert indices.tolist() == [[2, 3], [0, 1]]
    assert_same_bits(values, np.take_along_axis(q.dequantize(), indices, 1))


def test_a_sorted_array_can_stay_quantized():
    q = qn.quantize(np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32), "U8 affine")
    assert_same_bits(q.take_along_axis(q.argsort(0), 0).dequantize(), q.sort(0))


@pytest.mark.parametrize("scale", [0.0, 2.0**-149, 1.0, 3e38])
@pytest.mark.parametrize("scheme", ["Q8S", "U8 affine"])
def test_scales_at_the_ends_of_float32(scale, scheme):
    """Where numbers run together, at 0 or at infinity, codes are not in their order."""
    points = np.array(7) if "affine" in scheme else None
    params = qn.QParams(np.array(scale, np.float32), None, points)
    codes = np.array([3, 9, 120, 5, 126, 126], np.int8 if points is None else np.uint8)
    q = qn.quantize(np.zeros(6, np.float32), scheme, params=params)
    record = bytearray(q.to_record())
    record[:6] = codes.tobytes()
    q = qn.QArray.from_record(record, scheme, (6,))
    with np.errstate(over="ignore"):
        x = q.dequantize()
    assert q.argmax() == np.argmax(x)
    assert q.argmin() == np.argmin(x)
    assert_same_bits(q.sort(), np.sort(x, kind="stable"))
    assert q.topk(6)[1].tolist() == ranked(x, -1, largest=True).tolist()


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_nothing_has_no_extreme(shape):
    q = qn.quantize(np.zeros(shape, np.float32), "int4")
    for name in ("argmax", "argmin", "max", "min"):
        with pytest.raises(qn.SchemeError, match="has no largest or smallest number"):
            getattr(q, name)()
        with pytest.raises(ValueError, match="give an array with elements"):
            getattr(q, name)(-1)
    assert q.sort().shape == shape


def test_an_axis_without_lines_gives_nothing():
    q = qn.quantize(np.zeros((0, 3), np.float32), "int4")
    assert q.argmax(1).shape == (0,)
    assert q.max(1, keepdims=True).shape == (0, 1)


@pytest.mark.parametrize("k", [-1, 4])
def test_topk_of_more_than_there_is(k):
    q = qn.quantize(np.zeros((2, 3), np.float32), "int4")
    with pytest.raises(qn.SchemeError, match=f"k is {k}; give a number from 0 to 3"):
        q.topk(k)


@pytest.mark.parametrize("scheme", ["Q4S", "Q8S block=64:F16", "nvfp4", "Q8S block=2147483647"])
@pytest.mark.parametrize("name", ["argmax", "min", "topk"])
def test_memory_is_bounded(scheme, name):
    q = qn.quantize(np.arange(2**23, dtype=np.float32).reshape(1, -1), scheme)
    call = {"argmax": q.argmax, "min": lambda: q.min(1), "topk": lambda: q.topk(3)}[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "PIECE", 1 << 16)
        call()
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2**23 / 2, f"{peak:,} bytes for 32 MiB of numbers"
