"""Observers give what one calibration of all chunks gives, in any order, or what they state."""

from __future__ import annotations

import itertools
import json
import pickle
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import qnumba as qn
from observing import assert_same_params, observe
from qnumba.observers import MSE, AbsMax, AbsMean, MinMax, MovingAverage, Observer, Percentile
from qnumba.scheme import expand_block
from strategies import arrays, schemes
from support import assert_same_bits

KINDS = [MinMax, AbsMax, AbsMean, MovingAverage, Percentile, MSE]
EXACT = [MinMax, AbsMax]  # the same bits as calibrate
ORDERLESS = [MinMax, AbsMax, AbsMean, Percentile, MSE]
RNG = np.random.default_rng(5)


def same_state(first, second):
    first, second = first.state_dict(), second.state_dict()
    parts = [state.pop("summary") for state in (first, second)]
    assert first == second
    for name in parts[0]:
        assert_same_bits(parts[0][name], parts[1][name]) if name != "total" else None
        assert np.array_equal(parts[0][name], parts[1][name])


# --- equal to one calibration


@pytest.mark.parametrize("kind", EXACT)
@given(st.data())
def test_ranges_equal_one_calibration_of_all_chunks(kind, data):
    scheme = data.draw(schemes(1))
    assume(scheme.block is None and (kind is MinMax or scheme.mode != "affine"))
    shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
    chunks = data.draw(st.lists(shapes.flatmap(arrays), min_size=1, max_size=4))
    whole = np.concatenate([np.ravel(chunk).astype(promoted(chunks)) for chunk in chunks])
    expected = qn.calibrate(whole, scheme)
    assert_same_params(observe(kind(scheme), chunks).params(), expected)
    assert_same_params(observe(kind(), chunks).params(scheme), expected)


def promoted(chunks):
    return np.float64 if any(chunk.dtype == np.float64 for chunk in chunks) else np.float32


@pytest.mark.parametrize("kind", EXACT)
@given(st.data())
def test_blocks_of_all_chunks_share_a_range(kind, data):
    shape = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple))
    scheme = data.draw(schemes(len(shape)))
    assume(scheme.block is not None and (kind is MinMax or scheme.mode != "affine"))
    chunks = data.draw(st.lists(arrays(shape), min_size=1, max_size=4))
    stacked = np.stack([chunk.astype(promoted(chunks)) for chunk in chunks], axis=-1)
    block = (*expand_block(scheme, len(shape)), len(chunks))
    expected = qn.calibrate(stacked, scheme.replace(block=block, pack_axis=0))
    found = observe(kind(scheme), chunks).params()
    assert_same_bits(found.scales, expected.scales[..., 0])
    assert found.global_scale == expected.global_scale
    if found.zero_points is not None:
        assert_same_bits(found.zero_points, expected.zero_points[..., 0])
    q = qn.quantize(chunks[0], scheme, params=found)
    assert q.params == found


def test_one_observation_serves_many_schemes():
    x = RNG.normal(size=(8, 64)).astype(np.float32)
    observer = MinMax("Q8S block=32:F32").update(x)
    for scheme in ("Q4S block=32:F16", "U4 affine block=32:F32", "mxfp4", "Q8F block=32:UE4M3"):
        assert_same_params(observer.params(scheme), qn.calibrate(x, scheme))
    for rule in ("up", "nearest", "floor", "even"):
        expected = qn.calibrate(x, "mxfp8", scale_rounding=rule)
        assert_same_params(observer.params("mxfp8", scale_rounding=rule), expected)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u1", ">f4", ml_dtypes.bfloat16])
def test_chunks_of_every_dtype(dtype):
    x = np.arange(12).astype(dtype)
    assert_same_params(MinMax("uint8").update(x).params(), qn.calibrate(x, "uint8"))


# --- X10: a stream that begins with zeros, or with nothing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["int8", "Q8S block=4:F32"])
def test_a_stream_that_begins_with_zeros(kind, scheme):
    chunks = [np.zeros(8), np.zeros(8), np.arange(8.0)]
    found = observe(kind(scheme), chunks).params()
    if kind in EXACT and scheme == "int8":
        assert_same_params(found, qn.calibrate(np.concatenate(chunks), scheme))
    assert (found.scales > 0).all()
    assert qn.quantize(chunks[2], scheme, params=found).shape == (8,)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["int8", "Q8S block=4:F32"])
@pytest.mark.parametrize("size", [0, 8])
def test_streams_of_zeros_and_of_nothing(kind, scheme, size):
    chunks = [np.zeros(size)] * 3
    expected = qn.calibrate(np.concatenate(chunks)[: max(size, 0)], scheme)
    assert_same_params(observe(kind(scheme), chunks).params(), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_no_data_is_an_error(kind):
    with pytest.raises(qn.DataError, match=rf"{kind.__name__} observer has seen no data; call upd"):
        kind("int8").params()
    with pytest.raises(qn.DataError, match="no data"):
        kind("int8").merge(kind("int8")).params()


@pytest.mark.parametrize("kind", KINDS)
def test_empty_chunks_change_nothing(kind):
    x = RNG.normal(size=64)
    expected = kind("int8").update(x).params()
    found = observe(kind("int8"), [np.zeros(0), x, np.zeros((0, 3))]).params()
    assert_same_params(found, expected)


# --- order, merging, saving


@pytest.mark.parametrize("kind", ORDERLESS)
@pytest.mark.parametrize("scheme", ["int8", "Q4S block=2x3:F16"])
def test_neither_order_nor_grouping_changes_a_bit(kind, scheme):
    chunks = [RNG.normal(size=(5, 7)) * 10.0**k for k in (-9, 0, 3)]
    chunks.append(chunks[0].astype(np.float32))
    first = observe(kind(scheme), chunks)
    for order in itertools.permutations(chunks):
        left, right = observe(kind(scheme), order[:2]), observe(kind(scheme), order[2:])
        same_state(first, left.merge(right))
        assert_same_params(left.params(), first.params())
    same_state(first, kind(scheme).merge(first).merge(kind(scheme)))


def test_merging_changes_only_the_one_merged_into():
    for kind in KINDS:
        one, other = kind().update(np.ones(3)), kind().update(np.full(3, 2.0))
        before = pickle.dumps(other.state_dict())
        one.merge(other).update(np.full(3, 5.0))
        assert pickle.dumps(other.state_dict()) == before
        assert (one.chunks, other.chunks) == (3, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", [None, "int8", "Q8S block=3:F16"])
@pytest.mark.parametrize("seen", [0, 2])
def test_observers_are_saved_and_pickled(kind, scheme, seen):
    observer = observe(kind(scheme, nonfinite="clip"), [RNG.normal(size=(2, 7))] * seen)
    for copy in (
        pickle.loads(pickle.dumps(observer)),
        Observer.from_state_dict(observer.state_dict()),
        Observer.from_state_dict(pickle.loads(pickle.dumps(observer.state_dict()))),
        Observer.from_state_dict(json.loads(json.dumps(observer.state_dict(), default=listed))),
    ):
        assert type(copy) is kind
        assert repr(copy) == repr(observer)
        assert str(copy.scheme) == str(observer.scheme)
        if seen:
            same_state(copy, observer)
            known = scheme or "int8"
            more = RNG.normal(size=(2, 7))
            expected = pickle.loads(pickle.dumps(observer)).update(more).params(known)
            assert_same_params(copy.update(more).params(known), expected)


def listed(thing):
    return thing.tolist() if isinstance(thing, (np.ndarray, np.generic)) else list(thing)


@pytest.mark.parametrize(
    "change",
    [
        {"observer": "Median"},
        {"scheme": "Q9"},
        {"nonfinite": 3},
        {"summary": {}},
        {"summary": {"lo": [1.0], "hi": [2.0]}},
        {"summary": 3},
        {"summary": np.ones(3)},
        {"shape": {8}},
        {"dtype": "float99"},
        {"shape": 5},
        {"chunks": None},
    ],
)
def test_states_that_are_none(change):
    state = MinMax("Q8S block=4:F32").update(np.ones(8)).state_dict()
    with pytest.raises(qn.DecodeError, match="no state of an observer"):
        Observer.from_state_dict(state | change)
    with pytest.raises(qn.DecodeError):
        Observer.from_state_dict({})


def test_saved_state_is_not_changed_later():
    observer = MinMax().update(np.ones(3))
    state = observer.state_dict()
    observer.update(np.full(3, 9.0))
    assert float(state["summary"]["hi"]) == 1


# --- NaN and infinity


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_values(kind, bad):
    x = np.array([1.0, bad, -3.0, 2.0])
    observer = kind("int8").update(np.ones(2))
    before = observer.params()
    with pytest.raises(qn.DataError, match="index 1"):
        observer.update(x)
    assert_same_params(observer.params(), before)
    for policy in ("clip", "keep"):
        finite = kind("fp8", nonfinite=policy).update(x[[0, 2, 3]])
        assert_same_params(kind("fp8", nonfinite=policy).update(x).params(), finite.params())
    with pytest.raises(qn.SchemeError, match="no rule for NaN"):
        kind("int8", nonfinite="ignore")
    with pytest.raises(qn.SchemeError, match="no code for NaN"):
        kind("int8", nonfinite="keep").update(x).params()


@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_without_a_finite_value_is_zeros(kind):
    x = np.full(4, np.nan)
    found = kind("int8", nonfinite="clip").update(x).params()
    assert_same_params(found, qn.calibrate(x, "int8", nonfinite="clip"))


# --- AbsMean


def exact_mean(chunks):
    sizes = [Fraction(abs(float(number))) for chunk in chunks for number in np.ravel(chunk)]
    return sum(sizes) / len(sizes)


@given(st.lists(st.integers(1, 60).flatmap(lambda n: arrays((n,))), min_size=1, max_size=3))
def test_the_mean_is_exact(chunks):
    found = observe(AbsMean(), chunks)
    total, count = (found.state_dict()["summary"][name] for name in ("total", "count"))
    assert Fraction(int(total), int(count)) / 2**1126 == exact_mean(chunks)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [0, 8])
def test_the_mean_is_within_its_bound_of_calibrate(dtype, spread):
    x = (RNG.normal(size=300_000) * 10 ** RNG.uniform(-spread, spread, 300_000)).astype(dtype)
    found = observe(AbsMean("ternary"), np.array_split(x, 7)).params().scales
    one = qn.calibrate(x, "ternary", method="absmean").scales
    bound = (x.size / 65536 + 264) * 2.0**-53 + 2.0**-23
    assert abs(float(found) / float(one) - 1) <= bound


def test_the_mean_of_blocks():
    chunks = [RNG.normal(size=(4, 6)) for _ in range(3)]
    found = observe(AbsMean("Q2S block=2x4:F32"), chunks).params().scales
    stacked = np.abs(np.stack(chunks))
    expected = [[stacked[:, r : r + 2, c : c + 4].mean() for c in (0, 4)] for r in (0, 2)]
    np.testing.assert_allclose(found, expected, rtol=2.0**-23)


def test_the_mean_of_dyadic_numbers_is_that_of_calibrate():
    x = RNG.integers(-1000, 1000, 100_000) / 64
    found = observe(AbsMean("ternary"), np.array_split(x, 9)).params()
    assert_same_params(found, qn.calibrate(x, "ternary", method="absmean"))


def test_means_of_extreme_numbers_do_not_overflow():
    largest = np.finfo(np.float64).max
    found = AbsMean().update([largest, -largest, largest, 0.0]).state_dict()["summary"]
    assert Fraction(int(found["total"]), 2**1126) == 3 * Fraction(largest)
    assert AbsMean("int8").update(np.full(9, 1e-40)).params().scales > 0


@pytest.mark.parametrize("scheme", ["uint8", "nvfp4"])
def test_means_have_no_zero_point_and_no_second_level(scheme):
    with pytest.raises(qn.SchemeError, match=r"absmean|AbsMean"):
        AbsMean(scheme).update(np.ones((4, 16))).params()


def test_magnitudes_have_no_zero_point():
    with pytest.raises(qn.SchemeError, match=r"keeps none; use MinMax\('U8 affine'\)"):
        AbsMax().update(np.ones(4)).params("uint8")


# --- MovingAverage


def test_a_constant_stream_averages_to_itself():
    x = np.array([-1.0, 0.3, 2.7])
    for rate in (0, 0.01, 0.5, 1):
        found = observe(MovingAverage("uint8", rate=rate), [x] * 20).params()
        assert_same_params(found, qn.calibrate(x, "uint8"))


def test_averages_follow_the_formula():
    chunks = [np.array([-float(k), 2.0 * k]) for k in (3, 1, 4, 1, 5)]
    weights = 0.75 ** np.arange(4, -1, -1)
    hi = np.average([chunk.max() for chunk in chunks], weights=weights)
    found = observe(MovingAverage("int8", rate=0.25), chunks).params()
    assert float(found.scales) == pytest.approx(hi / 127, rel=1e-6)
    assert_same_params(
        observe(MovingAverage("int8", rate=1), chunks).params(), qn.calibrate(chunks[-1], "int8")
    )


@pytest.mark.parametrize("scheme", ["uint8", "Q8S block=2:F32"])
def test_merging_averages_appends_the_others_chunks(scheme):
    chunks = [RNG.normal(size=6) for _ in range(9)]
    one = observe(MovingAverage(scheme, rate=0.1), chunks)
    for cut in range(10):
        left = observe(MovingAverage(scheme, rate=0.1), chunks[:cut])
        right = observe(MovingAverage(scheme, rate=0.1), chunks[cut:])
        merged = left.merge(right).params()
        np.testing.assert_allclose(merged.scales, one.params().scales, rtol=2.0**-22)


# --- what is refused


def test_chunks_of_another_shape():
    observer = MinMax("Q8S block=4:F32").update(np.ones((2, 8)))
    with pytest.raises(qn.SchemeError, match=r"shape \(3, 8\), those before had \(2, 8\)"):
        observer.update(np.ones((3, 8)))
    with pytest.raises(qn.SchemeError, match="those before had"):
        observer.merge(MinMax("Q8S block=4:F32").update(np.ones((3, 8))))
    assert observer.chunks == 1


def test_schemes_of_another_block():
    observer = MinMax("Q8S block=4:F32").update(np.ones(8))
    with pytest.raises(qn.SchemeError, match=r"kept ranges for block=\(4,\), not \(8,\); make"):
        observer.params("Q8S block=8:F32")
    with pytest.raises(qn.SchemeError, match="made without a scheme"):
        MinMax().update(np.ones(8)).params()
    with pytest.raises(qn.SchemeError, match="more extents"):
        MinMax("fp8_block").update(np.ones(8))


@pytest.mark.parametrize(
    ("one", "other", "match"),
    [
        (MinMax(), AbsMax(), "merges with its like"),
        (MinMax(), 3, "merges with its like"),
        (MinMax(), MinMax("int4"), "block is None here"),
        (MovingAverage(rate=0.1), MovingAverage(rate=0.2), "rate is 0.1 here"),
        (Percentile(), Percentile(bits=4), "bits is 10 here"),
        (Percentile(percentile=99), Percentile(), "percentile is 99"),
        (MSE(), MSE(ratios=[1.0]), "ratios is"),
    ],
)
def test_observers_that_do_not_merge(one, other, match):
    with pytest.raises(qn.QuantizationError, match=match):
        one.merge(other)


@pytest.mark.parametrize("bad", [np.array([True]), np.array([1j]), np.array(["a"])])
def test_dtypes_that_cannot_be_quantized(bad):
    with pytest.raises(qn.QuantizedTypeError):
        MinMax().update(bad)


@pytest.mark.parametrize("wrong", [-1, 101, "a", None, True, np.ones(2), 10**400, np.nan], ids=str)
def test_settings_are_checked(wrong):
    with pytest.raises(qn.SchemeError, match="from 0 to 1"):
        MovingAverage(rate=wrong)
    with pytest.raises(qn.SchemeError, match="up to 100"):
        Percentile(percentile=wrong)
    with pytest.raises(qn.SchemeError, match="from 0 to 23"):
        Percentile(bits=wrong)
    for ratios in ([wrong], wrong) if wrong is None or isinstance(wrong, str) else ([wrong],):
        with pytest.raises(qn.SchemeError, match="up to 1"):
            MSE(ratios=ratios)
