"""The report's figures against sums done by hand, its texts, and its picture."""

import json
import math

import numpy as np
import pytest

import qnumba as qn


@pytest.fixture
def x():
    return np.random.default_rng(5).standard_normal((9, 70)).astype(np.float32)


@pytest.mark.parametrize("preset", qn.PRESETS)
def test_figures_are_the_plain_sums(x, preset):
    q = qn.quantize(x, preset)

    found = qn.report(x, q)

    error = np.abs(x.astype(np.float64) - q.dequantize())
    assert found.max_error == pytest.approx(error.max())
    assert found.mean_error == pytest.approx(error.mean())
    assert found.p99_error == pytest.approx(np.quantile(error, 0.99))
    noise, signal = np.sum(error**2), np.sum(x.astype(np.float64) ** 2)
    assert found.snr == pytest.approx(10 * np.log10(signal / noise))
    assert found.relative_rms == pytest.approx(np.sqrt(noise / signal))
    assert found.bits_per_value == q.bits_per_value
    assert found.compression == pytest.approx(x.nbytes / q.nbytes)
    assert found.blocks == q.scales.size


def test_clipped_counts_values_beyond_half_a_step():
    x = np.array([0.0, 1.0, 127.4, 127.6, 500.0, -127.4, -200.0], np.float32)
    params = qn.QParams(np.float32(1.0) * np.ones(()))

    assert qn.report(x, qn.quantize(x, "int8", params=params)).clipped == 3


@pytest.mark.parametrize("scheme", ["Q8S", "Q8F", "Q4F", "Q2F", "E4M3", "U8 affine", "nf4"])
@pytest.mark.parametrize("rounding", ["up", "nearest"])
def test_calibrated_values_are_not_clipped(x, scheme, rounding):
    assert qn.report(x, qn.quantize(x, scheme, scale_rounding=rounding)).clipped == 0


def test_affine_range_counts_from_the_zero_point():
    x = np.array([-1.0, 0.0, 254.4, 256.0], np.float32)
    params = qn.QParams(np.ones(()), zero_points=np.array(0))

    assert qn.report(x, qn.quantize(x, "uint8", params=params)).clipped == 2


def test_dead_blocks_are_those_that_all_became_zero():
    x = np.array([1e-9, 2e-9, 1.0, 2.0, 0.0, 0.0], np.float32)
    q = qn.quantize(x, qn.Scheme("Q8S", block=2, block_scale="F16"), scale_rounding="nearest")

    found = qn.report(x, q)

    assert (found.dead_blocks, found.blocks) == (1, 3)


def test_worst_blocks_come_first_with_their_index():
    x = np.zeros((4, 64), np.float32)
    x[2, 40:] = np.linspace(0, 1000, 24)
    x[1, :32] = np.linspace(0, 1, 32)

    worst = qn.report(x, qn.quantize(x, "int4")).worst_blocks

    assert [block.index for block in worst] == [(2, 1), (1, 0)]
    assert worst[0].rms_error > worst[1].rms_error > 0


def test_nonfinite_values_are_counted_and_left_out():
    x = np.array([np.nan, np.inf, 1.0, -1.0], np.float32)
    found = qn.report(x, qn.quantize(x, "int8", nonfinite="clip"))
    assert found.nonfinite == 2
    assert found.max_error == 0
    assert found.snr == math.inf


@pytest.mark.parametrize(
    "x",
    [np.zeros((0, 8)), np.float64(3), np.zeros(5), np.full(40, 7), np.array([1e300, -1e300])],
    ids=["empty", "0-d", "zeros", "integers", "huge"],
)
@pytest.mark.parametrize("scheme", ["int8", "uint8", "fp8"])
def test_odd_arrays_have_a_report(x, scheme):
    found = qn.report(x, qn.quantize(x, scheme))
    assert not math.isnan(found.snr)
    assert "scheme" in str(found)


ENDS = np.finfo(np.float32).max, np.finfo(np.float64).max


@pytest.mark.parametrize("scheme", ["int8", "mxfp8", "mxfp4", "uint8"])
@pytest.mark.filterwarnings("error")
def test_numbers_that_decode_to_infinity_are_errors_without_end(scheme):
    """A scale is rounded up, so the largest numbers of a dtype may decode to infinity."""
    x = np.full((128, 128), ENDS[0])
    x[0, 0] = np.nan
    q = qn.quantize(x, scheme, nonfinite="clip")

    found = qn.report(x, q)

    assert found.nonfinite == 1
    if np.isfinite(q.dequantize()[1:]).all():
        assert found.snr > 20
        return
    assert (found.snr, found.max_error, found.p99_error) == (-math.inf, math.inf, math.inf)
    assert found.to_dict()["max_error"] is None
    json.dumps(found.to_dict(), allow_nan=False)
    assert "-inf dB" in str(found)


@pytest.mark.parametrize(
    ("x", "scale"),
    [
        (np.full(4, ENDS[1] / 2), ENDS[0]),
        (np.full(4, 5e-324), 1.0),
        (np.array([ENDS[1], 1e-300]), 1e-30),
        (np.array([3e38, -3e38, 1, 2], np.float32), 1e-38),
        (np.array([1e-40, 2e-40, 3e-40], np.float32), 3e-42),
    ],
)
@pytest.mark.filterwarnings("error")
def test_figures_of_extreme_numbers_are_finite(x, scale):
    q = qn.quantize(x, "int8", params=qn.QParams(scale))

    found = qn.report(x, q)

    error = np.abs(x.astype(np.longdouble) - q.dequantize(np.float64))
    rms = np.sqrt((error**2).mean())
    assert found.mean_error == pytest.approx(float(error.mean()), rel=1e-6)
    assert found.worst_blocks[0].rms_error == pytest.approx(float(rms), rel=1e-6)
    assert found.relative_rms == pytest.approx(
        float(rms / np.sqrt((x.astype(np.longdouble) ** 2).mean())), rel=1e-6
    )
    assert found.snr == pytest.approx(-20 * math.log10(found.relative_rms), rel=1e-6, abs=1e-6)


def test_an_empty_array_has_no_bits_per_value():
    found = qn.report(np.zeros((0, 8)), qn.quantize(np.zeros((0, 8)), "int8"))
    assert "nan" not in str(found)
    assert found.to_dict()["bits_per_value"] is None


def test_many_chunks_add_up():
    x = np.random.default_rng(0).standard_normal(3_000_001).astype(np.float32)
    x[-1] = 50
    found = qn.report(x, qn.quantize(x, "int8"))
    error = np.abs(x.astype(np.float64) - qn.quantize(x, "int8").dequantize())
    assert found.snr == pytest.approx(
        10 * np.log10(np.sum(x.astype(float) ** 2) / np.sum(error**2))
    )


def test_dict_is_json_and_html_is_escaped(x):
    found = qn.report(x, qn.quantize(x, "nvfp4"))
    assert json.loads(json.dumps(found.to_dict()))["scheme"] == found.scheme
    assert found._repr_html_().count("<tr>") == len(str(found).splitlines())


def test_wrong_arguments_are_refused(x):
    q = qn.quantize(x, "int8")
    with pytest.raises(qn.SchemeError, match="shape"):
        qn.report(x.T, q)
    with pytest.raises(qn.QuantizedTypeError):
        qn.report(x, x)
    with pytest.raises(qn.QuantizedTypeError):
        qn.report(q, q)


@pytest.mark.parametrize("scheme", ["int8", "nvfp4", "uint8", "nf4"])
def test_plot_returns_three_axes_and_shows_nothing(x, scheme, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr(plt, "show", lambda *_: pytest.fail("plot() must not show"))

    axes = qn.report(x, qn.quantize(x, scheme)).plot()

    assert [ax.get_title() for ax in axes] == [
        "Values and the grid of codes",
        "Absolute error",
        "Error of every block",
    ]
    assert all(ax.patches or ax.lines or ax.images for ax in axes)
    plt.close("all")
    with pytest.raises(qn.SchemeError, match="three axes"):
        qn.report(x, qn.quantize(x, scheme)).plot(plt.subplots()[1])
    plt.close("all")
