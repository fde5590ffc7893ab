"""Matrix products: the front door, by the rules of ``numpy.matmul``, and its error bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qnumba as qn
from strategies import DTYPES, LAYOUTS, schemes

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}
SMALLEST = 2.0**-149


def numbers_of(x):
    """Return an array as float64, decoded if it is quantized."""
    x = x.dequantize() if isinstance(x, qn.QArray) else np.asarray(x)
    return x.astype(np.float64)


def assert_product(result, a, b, dtype="float32"):
    """Compare with the sum in float64 of the decoded numbers, within the bound the page states."""
    a, b = numbers_of(a), numbers_of(b)
    exact = a @ b
    assert result.dtype == dtype
    assert np.shape(result) == exact.shape
    k = a.shape[-1]
    bound = (k + 4) * UNIT[dtype] * (np.abs(a) @ np.abs(b)) + (k + 4) * SMALLEST
    assert (np.abs(result - exact) <= bound).all()


def random(shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


SHAPES = {
    "matrices": ((6, 64), (64, 5)),
    "row by matrix": ((64,), (64, 5)),
    "matrix by column": ((6, 64), (64,)),
    "vectors": ((64,), (64,)),
    "batch by matrix": ((2, 3, 6, 64), (64, 5)),
    "matrix by batch": ((6, 64), (2, 3, 64, 5)),
    "batches": ((3, 6, 64), (3, 64, 5)),
    "broadcast": ((3, 1, 6, 64), (2, 64, 5)),
    "column by batch": ((3, 6, 64), (64,)),
    "row by batch": ((64,), (3, 64, 5)),
    "one element": ((1, 1), (1, 1)),
    "one number each": ((1,), (1,)),
    "odd sizes": ((7, 33), (33, 3)),
    "no rows": ((0, 64), (64, 5)),
    "no columns": ((6, 64), (64, 0)),
    "nothing to sum": ((6, 0), (0, 5)),
    "no batch": ((0, 6, 64), (64, 5)),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("scheme", ["int8", "Q4S block=32:F16", "E4M3", "Q4S pack_axis=0"])
@pytest.mark.parametrize("sides", ["left", "right", "both"])
def test_shapes_are_those_of_numpy(shapes, scheme, sides):
    a, b = random(shapes[0]), random(shapes[1], 1)
    a = qn.quantize(a, scheme) if sides in {"left", "both"} else a
    b = qn.quantize(b, scheme) if sides in {"right", "both"} else b
    assert_product(qn.matmul(a, b), a, b)


def test_the_operator_and_numpy_do_the_same():
    q, x = qn.quantize(random((6, 64)), "int8"), random((64, 5), 1)
    expected = qn.matmul(q, x)
    assert (q @ x == expected).all()
    assert (np.matmul(q, x) == expected).all()
    assert (x.T @ q.T).shape == (5, 6)
    wide = q.dequantize(np.float64)
    assert_product(q @ x.tolist(), wide, x, "float64")
    assert_product(x[:, 0].tolist() @ q.T, x[:, 0], wide.T, "float64")


@given(data=st.data())
def test_any_scheme_is_within_the_bound(data):
    scheme = data.draw(schemes(rank=2))
    rows, k, count = (data.draw(st.integers(1, most)) for most in (40, 150, 12))
    seed = data.draw(st.integers(0, 1000))
    weights = qn.quantize(random((rows, k), seed), scheme)
    x = random((k, count), seed + 1)
    assert_product(weights @ x, weights, x)
    left = random((count, rows), seed + 2)
    assert_product(left @ weights, left, weights)


@given(data=st.data())
def test_any_two_schemes_are_within_the_bound(data):
    rows, k, count = (data.draw(st.integers(1, most)) for most in (20, 90, 20))
    a = qn.quantize(random((rows, k)), data.draw(schemes(rank=2)))
    b = qn.quantize(random((k, count), 1), data.draw(schemes(rank=2)))
    assert_product(a @ b, a, b)


@pytest.mark.parametrize(
    "scheme", ["int8", "nvfp4", "Q4S block=2x1x32:F16", "U4 affine block=8:F32"]
)
@pytest.mark.parametrize("batch", [(4,), (2, 3)])
def test_batches_of_weights(scheme, batch):
    weights = qn.quantize(random((*batch, 8, 64)), scheme)
    x = random((*batch, 64, 3), 1)
    assert_product(weights @ x, weights, x)
    left = random((5, 8), 2)
    assert_product(left @ weights, left, weights)


@pytest.mark.parametrize("dtype", [*DTYPES, "int8", "uint16", "int64"])
@pytest.mark.parametrize("scheme", ["int8", "Q4S block=32:F16", "E5M2"])
def test_dtypes(dtype, scheme):
    weights = qn.quantize(random((6, 256)), scheme)
    x = np.abs(random((256, 3), 1) * 10).astype(DTYPES.get(dtype, dtype))
    wide = dtype not in {"float32", "float16", "bfloat16"}
    result = weights @ x
    assert_product_of_numbers(result, weights, x, "float64" if wide else "float32")


def assert_product_of_numbers(result, weights, x, dtype):
    decoded = weights.dequantize(dtype)
    assert_product(result, decoded, x.astype(dtype), dtype)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_of_numbers(layout):
    weights, x = qn.quantize(random((6, 128)), "int8"), random((128, 3), 1)
    assert (weights @ layout(x) == weights @ x).all()


@pytest.mark.parametrize("scheme", ["int8", "Q4S block=32:F16", "ternary", "nvfp4"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("count", [1, 5])
def test_what_is_not_finite_goes_on(scheme, value, count):
    weights, x = qn.quantize(random((6, 256)), scheme), random((256, count), 1)
    x[3, 0] = value
    with np.errstate(all="ignore"):
        expected = weights.dequantize() @ x
    result = weights @ x
    assert (np.isnan(result) == np.isnan(expected)).all()
    assert (np.isinf(result) == np.isinf(expected)).all()
    assert not np.isfinite(result[:, 0]).any()
    assert np.isfinite(result[:, 1:]).all()


@pytest.mark.parametrize("scheme", ["int8", "int4", "ternary"])
@pytest.mark.parametrize("size", [1e-44, 1e-30, 1e25, 1e36])
def test_numbers_of_any_size(scheme, size):
    weights = qn.quantize(random((6, 256)) * np.float32(1e-3), scheme)
    x = random((256, 2), 1) * np.float32(size)
    assert_product(weights @ x, weights, x)


@pytest.mark.parametrize("scheme", ["Q8S", "Q4S", "Q8F", "Q2S"])
@pytest.mark.parametrize("k", [64, 100, 256, 4096])
@pytest.mark.parametrize("columns", [1, 6, 40])
def test_integers_are_summed_exactly(scheme, k, columns):
    a, b = qn.quantize(random((6, k)), scheme), qn.quantize(random((k, columns), 1), "int8")
    whole = a.codes().astype(np.int64) @ b.codes().astype(np.int64)
    exact = whole * (float(a.scales) * float(b.scales))
    wide = k * 2.0**-53 * (np.abs(numbers_of(a)) @ np.abs(numbers_of(b)))  # where floats are summed
    bound = 3 * 2.0**-24 * np.abs(exact) + wide
    assert (np.abs((a @ b) - exact) <= bound).all()
    assert (np.abs(b.T @ a.T - exact.T) <= bound.T).all()


def test_integers_at_the_ends_of_their_range():
    k = 2**16
    a = qn.quantize(np.full((1, k), -1, np.float32), "Q8F", params=qn.QParams(np.float32(1 / 128)))
    assert (a.codes() == -128).all()
    assert (a @ a.T).item() == k
    x = np.full((k,), -1, np.float32)
    assert (a @ x).item() == k


REFUSED = {
    "add": lambda q: q + 1,
    "add from the left": lambda q: np.ones(4, np.float32) + q,
    "numpy.add": lambda q: np.add(q, np.ones(4)),
    "multiply": lambda q: q * q,
    "scale": lambda q: 2 * q,
    "negative": lambda q: -q,
    "less": lambda q: q < 1,
    "exp": np.exp,
    "sum": lambda q: np.add.reduce(q),
    "dot": lambda q: np.dot(q, np.ones(4)),
    "power": lambda q: q**2,
}


@pytest.mark.parametrize("use", REFUSED.values(), ids=REFUSED)
def test_arithmetic_on_elements_asks_for_dequantize(use):
    q = qn.quantize(np.ones(4, np.float32), "int8")
    with pytest.raises(qn.QuantizedTypeError, match=r"dequantize\(\) first"):
        use(q)


def test_results_cannot_be_put_elsewhere():
    q, x = qn.quantize(np.eye(4, dtype=np.float32), "int8"), np.eye(4, dtype=np.float32)
    with pytest.raises(qn.QuantizedTypeError, match="does not take out=; leave it out"):
        np.matmul(q, x, out=np.empty((4, 4), np.float32))
    with pytest.raises(qn.QuantizedTypeError, match="leave it out"):
        x @= q


@pytest.mark.parametrize(
    "shapes", [((6, 64), (63, 5)), ((64,), (6, 5)), ((2, 6, 4), (3, 4, 5)), ((), (4,)), ((4,), ())]
)
def test_shapes_that_do_not_fit(shapes):
    a, b = (random(shape) for shape in shapes)
    with pytest.raises(qn.SchemeError, match="give \\(..., m, k\\) and \\(..., k, n\\)"):
        qn.matmul(qn.quantize(a, "int8"), b)


@pytest.mark.parametrize(
    "x",
    [np.ones(4, bool), np.ones(4, complex), np.array(["a"] * 4), np.ones(4, object)],
    ids=["bool", "complex", "text", "object"],
)
def test_dtypes_that_are_no_numbers(x):
    q = qn.quantize(np.eye(4, dtype=np.float32), "int8")
    with pytest.raises(qn.QuantizedTypeError, match="matmul takes float32, float64"):
        qn.matmul(q, x)


def test_two_plain_arrays_are_for_numpy():
    with pytest.raises(qn.QuantizedTypeError, match=r"use numpy.matmul"):
        qn.matmul(np.eye(3), np.eye(3))


def test_masked_arrays_are_refused():
    q = qn.quantize(np.eye(4, dtype=np.float32), "int8")
    with pytest.raises(qn.QuantizedTypeError, match="filled"):
        qn.matmul(q, np.ma.masked_array(np.ones(4), mask=[0, 0, 1, 0]))
