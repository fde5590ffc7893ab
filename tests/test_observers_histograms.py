"""Percentiles are within their bound, and the scale of least error is that of the grid."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qnumba as qn
from observing import assert_same_params, observe
from qnumba.observers import MSE, MinMax, Percentile
from qnumba.scheme import expand_block
from strategies import arrays, schemes

RNG = np.random.default_rng(5)


# --- Percentile


def smallest_holding(numbers, percentile):
    """Return the smallest of the numbers that at least so many percent of them do not exceed."""
    rank = math.ceil(Fraction(str(percentile)) / 100 * len(numbers))
    return np.sort(numbers)[max(rank, 1) - 1]


@pytest.mark.parametrize("percentile", [0.1, 33.3, 50, 99, 99.9, 100])
@pytest.mark.parametrize("bits", [0, 4, 10, 23])
def test_percentiles_are_within_their_bound(percentile, bits):
    x = (RNG.normal(size=1000) * 10 ** RNG.uniform(-5, 5, 1000)).astype(np.float32)
    observer = observe(Percentile(percentile=percentile, bits=bits), np.array_split(x, 3))
    true = smallest_holding(np.abs(x), percentile)
    (lo,), (hi,) = (np.ravel(end) for end in observer._range(observer._summary, qn.Scheme("Q8S")))
    assert true <= hi <= min(true * (1 + 2.0**-bits), np.abs(x).max())
    assert lo == -hi


@pytest.mark.parametrize("percentile", [50, 99, 100])
@pytest.mark.parametrize("shift", [-100.0, 0.0, 100.0])
def test_percentiles_of_both_sides(percentile, shift):
    x = RNG.normal(size=1001) + shift
    observer = observe(Percentile(percentile=percentile, bits=12), np.array_split(x, 3))
    scheme = qn.Scheme("U8", mode="affine")
    lo, hi = (float(end) for end in observer._range(observer._summary, scheme))
    share = 50 + Fraction(percentile) / 2
    top = max(smallest_holding(x, share), 0)
    bottom = max(smallest_holding(-x, share), 0)
    assert top <= hi <= max(top * (1 + 2.0**-12), 0)
    assert bottom <= -lo <= max(bottom * (1 + 2.0**-12), 0)


@given(st.data())
def test_all_percent_are_the_range(data):
    scheme = data.draw(schemes(2))
    chunks = data.draw(st.lists(arrays((3, 5)), min_size=1, max_size=3))
    found = observe(Percentile(scheme, percentile=100), chunks).params()
    assert_same_params(found, observe(MinMax(scheme), chunks).params())


def test_percentiles_of_blocks_are_those_of_their_values():
    chunks = [RNG.normal(size=(4, 6)) * 10.0**k for k in range(3)]
    scheme = qn.Scheme("Q8S", block=(2, 4))
    found = observe(Percentile(scheme, percentile=80), chunks).params().scales
    for r, c in np.ndindex(2, 2):
        part = np.stack(chunks)[:, 2 * r : 2 * r + 2, 4 * c : 4 * c + 4]
        one = Percentile("int8", percentile=80).update(part).params().scales
        assert found[r, c] == one


def test_outliers_do_not_stretch_the_range():
    x = RNG.normal(size=100_000)
    x[:5] = 1e6
    assert Percentile("int8").update(x).params().scales < 4 / 127


@pytest.mark.parametrize(
    "wrong", [{"percentile": 0}, {"percentile": 100.1}, {"bits": -1}, {"bits": 24}, {"bits": 1.5}]
)
def test_percentile_arguments(wrong):
    with pytest.raises(qn.SchemeError, match="; give"):
        Percentile(**wrong)


# --- MSE


def errors_of_grid(x, scheme, ratios):
    lo, hi = min(x.min(), 0), max(x.max(), 0)
    for ratio in ratios:
        params = qn.calibrate(np.array([lo, hi], x.dtype) * x.dtype.type(ratio), scheme)
        decoded = qn.quantize(x, scheme, params=params).dequantize(np.float64)
        yield float(((decoded - x) ** 2).sum())


@pytest.mark.parametrize("scheme", ["int8", "Q4S", "ternary", "U4 affine", "E2M1", "E4M3"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_scale_of_least_error_is_found(scheme, dtype):
    x = RNG.standard_t(4, size=500).astype(dtype)
    observer = observe(MSE(scheme), np.array_split(x, 4))
    decoded = qn.quantize(x, scheme, params=observer.params()).dequantize(np.float64)
    error = float(((decoded - x) ** 2).sum())
    grid = list(errors_of_grid(x, scheme, observer.ratios))
    assert error <= min(grid) * 1.01
    assert error <= grid[0]


@pytest.mark.parametrize("scheme", ["Q4S block=8:F16", "U4 affine block=2x8:F32", "mxfp4", "nf4"])
def test_the_scale_of_least_error_of_blocks(scheme):
    x = RNG.standard_t(4, size=(4, 64))
    found = MSE(scheme).update(x).params()
    block = expand_block(qn.Scheme.parse(scheme), 2)
    single = qn.Scheme.parse(scheme).replace(block=2**31 - 1)
    for r, c in np.ndindex(found.scales.shape):
        part = x[r * block[0] : (r + 1) * block[0], c * block[1] : (c + 1) * block[1]]
        alone = MSE(single).update(part.reshape(-1)).params()
        assert found.scales[r, c] == alone.scales[0]
        assert found.zero_points is None or found.zero_points[r, c] == alone.zero_points[0]


def test_two_levels_keep_the_global_scale():
    x = RNG.standard_t(3, size=(8, 64)).astype(np.float32)
    found, widest = MSE("nvfp4").update(x).params(), qn.calibrate(x, "nvfp4")
    assert found.global_scale == widest.global_scale
    assert (found.scales <= widest.scales).all()

    def error(params):
        return np.square(qn.quantize(x, "nvfp4", params=params).dequantize() - x).sum()

    assert error(found) < error(widest)


def test_a_range_is_kept_where_nothing_is_gained():
    x = np.array([-127.0, 0, 1, 127])
    assert_same_params(MSE("int8").update(x).params(), qn.calibrate(x, "int8"))


@pytest.mark.parametrize("ratios", [[], [0.0], [1.1], [-1]])
def test_ratios_are_checked(ratios):
    with pytest.raises(qn.SchemeError, match="ratios"):
        MSE(ratios=ratios)


def test_many_values_are_searched_in_batches(monkeypatch):
    x = RNG.normal(size=(16, 32)).astype(np.float32)
    expected = MSE("int4").update(x).params()
    monkeypatch.setattr("qnumba.observers.histograms.BATCH", 40)
    monkeypatch.setattr("qnumba.observers.groups.PIECE", 50)
    assert_same_params(MSE("int4").update(x).params(), expected)
