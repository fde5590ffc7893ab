"""Trees of arrays: what is chosen, why the rest is left, and that the rest is untouched."""

from __future__ import annotations

import json
import pickle

import ml_dtypes
import numpy as np
import pytest

import qnumba as qn
from qnumba.observers import MSE
from qnumba.tree import dequantize_tree, quantize_tree, report_tree, summarize_tree
from qnumba.tree.walk import leaves
from support import assert_same_bits
from trees import by_path, model, normal

RNG = np.random.default_rng(3)


# --- what is chosen


@pytest.mark.parametrize(
    ("include", "exclude", "chosen"),
    [
        ("*", (), {"a.weight", "a.bias", "b.weight"}),
        ("*.weight", (), {"a.weight", "b.weight"}),
        (["a.*", "b.*"], "*.bias", {"a.weight", "b.weight"}),
        ("[ab].weight", "b.*", {"a.weight"}),
        ("?.bias", [], {"a.bias"}),
        ("A.*", (), set()),
        ([], (), set()),
    ],
)
def test_patterns(include, exclude, chosen):
    tree = {"a": {"weight": normal(4), "bias": normal(4)}, "b": {"weight": normal(4)}}
    found = quantize_tree(tree, "int8", include=include, exclude=exclude)
    assert {path for path, leaf in leaves(found) if isinstance(leaf, qn.QArray)} == chosen
    summary = summarize_tree(tree, "int8", include=include, exclude=exclude)
    assert {row.path for row in summary.quantized} == chosen


def test_schemes_by_pattern():
    tree = {
        "head": {"w": normal(8, 32)},
        "body": {"w": normal(8, 32), "b": normal(8)},
        "x": normal(3),
    }
    found = quantize_tree(tree, {"head.*": "int8", "*.b": None, "body.*": "int4"})
    assert str(found["head"]["w"].scheme) == "Q8S"
    assert str(found["body"]["w"].scheme) == "Q4S block=32:F16"
    assert found["body"]["b"] is tree["body"]["b"]
    assert found["x"] is tree["x"]
    reasons = {
        row.path: row.reason for row in summarize_tree(tree, {"*.b": None, "head.*": "int8"})
    }
    assert reasons["body.b"] == "'*.b' is left"
    assert reasons["x"] == "no pattern of the schemes matches"


def test_biases_whose_length_is_no_multiple_of_a_block():
    tree = {"weight": normal(64, 100), "bias": normal(100)}
    found = quantize_tree(tree, "int4")
    assert found["bias"] == qn.quantize(tree["bias"], "int4")
    assert found["bias"].scales.shape == (4,)
    assert quantize_tree(tree, "int4", min_size=101)["bias"] is tree["bias"]
    small = summarize_tree(tree, "int4", min_size=101).rows[1]
    assert small.reason == "fewer elements than min_size=101"


def test_a_scheme_that_does_not_fit():
    tree = {"weight": normal(128, 256), "bias": normal(128)}
    assert quantize_tree(tree, "fp8_block")["bias"] is tree["bias"]
    reason = summarize_tree(tree, "fp8_block").rows[1].reason
    assert "more extents than the array of shape (128,)" in reason
    found = quantize_tree(tree, "fp8_block", on_invalid="fp8")
    assert found["bias"].scheme == qn.PRESETS["fp8"]
    assert "in place of" in summarize_tree(tree, "fp8_block", on_invalid="fp8").rows[1].reason
    for function in (quantize_tree, summarize_tree):
        with pytest.raises(qn.SchemeError, match=r"^bias: the block") as caught:
            function(tree, "fp8_block", on_invalid="raise")
        assert caught.value.field == "block"
        assert caught.value.nearest is not None
        with pytest.raises(qn.SchemeError, match=r"^bias: the block"):
            function(tree, "fp8_block", on_invalid="Q8S block=2x2:F32")


def test_arrays_that_are_no_floats_are_left():
    tree = {
        "ids": np.arange(4),
        "mask": np.array([True]),
        "names": np.array(["a"]),
        "object": np.array([None]),
        "complex": np.array([1j]),
        "fp8": np.ones(3, ml_dtypes.float8_e4m3fn),
    }
    found = quantize_tree(tree, "int8")
    assert all(found[name] is leaf for name, leaf in tree.items())
    reasons = [row.reason for row in summarize_tree(tree, "int8")]
    assert reasons[0] == "dtype int64 is no float"
    assert all("is no float" in reason for reason in reasons)


def test_masked_arrays_are_not_taken_for_plain_ones():
    tree = {"m": np.ma.masked_array([1.0, 2.0], [True, False])}
    assert quantize_tree(tree, "int8")["m"] is tree["m"]
    assert "masked" in summarize_tree(tree, "int8").rows[0].reason
    with pytest.raises(qn.QuantizedTypeError, match=r"^m: masked"):
        quantize_tree(tree, "int8", on_invalid="raise")


def test_quantized_arrays_are_left():
    q = qn.quantize(normal(4), "int8")
    assert quantize_tree({"q": q}, "int4")["q"] is q
    row = summarize_tree({"q": q}, "int4").rows[0]
    assert (row.reason, row.dtype) == ("is quantized already", "Q8S")


def test_arrays_of_other_libraries():
    class Tensor:
        shape, dtype = (2, 2), "lib.float32"
        nbytes = 16

        def __array__(self, dtype=None, copy=None):
            return np.ones((2, 2), dtype or np.float32)

    found = quantize_tree({"t": Tensor(), "dtype": np.float32, "number": np.float64(3)}, "int8")
    assert isinstance(found["t"], qn.QArray)
    assert found["dtype"] is np.float32
    assert isinstance(found["number"], np.float64)


def test_empty_arrays_and_arrays_without_axes():
    tree = {"empty": normal(0, 4), "scalar": np.full((), 2.0)}
    found = quantize_tree(tree, "int4")
    assert found["empty"].shape == (0, 4)
    assert found["scalar"] is tree["scalar"]  # a block of 32 needs an axis
    assert quantize_tree(tree, "int8")["scalar"].dequantize() == pytest.approx(2)


# --- options


def test_options_go_to_every_array():
    tree = {"w": np.array([0.5, 1.0, 127.0], np.float32), "v": normal(8)}
    found = quantize_tree(tree, "int8", rounding="away")
    assert found["w"] == qn.quantize(tree["w"], "int8", rounding="away")
    found = quantize_tree(tree, "ternary", method="absmean")
    assert found["v"] == qn.quantize(tree["v"], "ternary", method="absmean")


def test_calibration_by_a_function():
    x = RNG.standard_t(3, size=(8, 64)).astype(np.float32)
    found = quantize_tree({"w": x}, "int4", calibration=lambda a, s: MSE(s).update(a).params())
    assert found["w"].params == MSE("int4").update(x).params()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"scheme": "Q9"}, "neither a preset"),
        ({"scheme": {"w": "Q9"}}, "neither a preset"),
        ({"on_invalid": "ignore"}, "neither a preset"),
        ({"rounding": "up"}, "not a rounding rule"),
        ({"scale_rounding": "floor"}, "defined for minifloats"),
        ({"scheme": "nvfp4", "method": "absmean"}, "no two-level form"),
        ({"speed": 3}, "speed: no such option; use rounding"),
        ({"include": [3]}, "3 is no pattern"),
        ({"exclude": 5}, "5 is no pattern"),
        ({"exclude": b"w"}, "b'w' is no pattern"),
        ({"min_size": "a"}, "min_size is 'a'; give a number"),
        ({"min_size": 2.5}, "min_size is 2.5"),
    ],
)
def test_wrong_arguments_are_never_skipped(arguments, match):
    scheme = arguments.pop("scheme", "int8")
    for function in (quantize_tree, summarize_tree):
        with pytest.raises(qn.SchemeError, match=match):
            function({"w": normal(4, 16)}, scheme, **arguments)


def test_nan_is_never_skipped():
    tree = {"layers": [{"w": np.array([1.0, np.nan], np.float32)}]}
    for policy in ("skip", "raise", "fp8"):
        with pytest.raises(qn.DataError, match=r"^layers\.0\.w: the array holds 1 NaN"):
            quantize_tree(tree, "int8", on_invalid=policy)
    found = quantize_tree(tree, "int8", nonfinite="clip")
    assert found["layers"][0]["w"].dequantize().tolist() == [1, 0]


# --- back


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_arrays_come_back_in_their_dtype(dtype):
    x = normal(4, 8).astype(dtype)
    q = quantize_tree([x], "int8")
    assert dequantize_tree(q)[0].dtype == x.dtype
    assert dequantize_tree(q, np.float64)[0].dtype == np.float64
    assert_same_bits(dequantize_tree(q)[0], q[0].dequantize(dtype))


def test_integers_come_back_as_float32():
    assert dequantize_tree([qn.quantize(np.arange(4), "int8")])[0].dtype == np.float32
    with pytest.raises(qn.QuantizedTypeError, match="cannot decode"):
        dequantize_tree([qn.quantize(np.arange(4), "int8")], np.int32)


# --- the summary


def test_a_summary_is_what_happens():
    tree = model()
    arguments = {"exclude": "*.bias", "min_size": 20}
    rows = {row.path: row for row in summarize_tree(tree, "nvfp4", **arguments)}
    found = by_path(quantize_tree(tree, "nvfp4", **arguments))
    for path, row in rows.items():
        assert (row.scheme is not None) == isinstance(found[path], qn.QArray)
        assert bool(row.reason) != (row.scheme is not None)
        assert row.quantized_nbytes == found[path].nbytes
    summary = summarize_tree(tree, "nvfp4", **arguments)
    assert summary.nbytes == sum(
        leaf.nbytes for path, leaf in by_path(tree).items() if path in rows
    )
    assert summary.quantized_nbytes == sum(found[path].nbytes for path in rows)
    assert len(summary.quantized) + len(summary.left) == len(summary)


def test_a_summary_prints_and_is_fit_for_json():
    tree = {"w": np.ones((64, 64), np.float32), "b<i>": np.ones((), np.float64)}
    summary = summarize_tree(tree, "fp8_block", include=["*", "typo"], exclude="*.bais")
    table = repr(summary).splitlines()
    assert table[1] == "w     64x64  float32  16,384      4,100  E4M3 block=128x128:F32"
    assert table[2].startswith("b<i>  ()     float64       8          8  -: the block (128, 128)")
    assert table[2].endswith("drop the lea...")
    assert table[3:] == [
        "1 of 2 arrays quantized, 16,392 -> 4,108 bytes, 3.99 times smaller",
        "patterns that matched no array: 'typo', '*.bais'",
    ]
    found = json.loads(json.dumps(summary.to_dict()))
    assert found["unused"] == ["typo", "*.bais"]
    assert found["arrays"][0]["scheme"] == "E4M3 block=128x128:F32"
    assert found["arrays"][0]["shape"] == [64, 64]
    assert "b&lt;i&gt;" in summary._repr_html_()
    assert pickle.loads(pickle.dumps(summary)) == summary


def test_a_summary_of_nothing():
    summary = summarize_tree({"a": None}, "int8")
    assert repr(summary).endswith("0 of 0 arrays quantized, 0 -> 0 bytes")


# --- the report


def test_a_report_has_the_figures_of_every_quantized_array():
    tree = model()
    quantized = quantize_tree(tree, {"*.0.*": "int4", "cache.*": "int8"})
    found = report_tree(tree, quantized)
    whole, parts = by_path(tree), by_path(quantized)
    assert list(found) == [path for path, leaf in parts.items() if isinstance(leaf, qn.QArray)]
    for path in found:
        assert found[path] == qn.report(whole[path], parts[path]).to_dict()
    assert found[found.worst[0]]["snr"] == min(found[path]["snr"] for path in found)
    assert json.loads(json.dumps(found.to_dict())).keys() == set(found)
    text = repr(found)
    assert text.splitlines()[0].split()[:3] == ["path", "scheme", "bits"]
    assert text.splitlines()[-1].startswith(f"{len(found)} arrays")
    assert "Q4S block=32:F16" in found._repr_html_()


def test_a_report_of_exact_and_of_infinite_errors():
    largest = np.full((128, 128), np.finfo(np.float32).max)
    tree = {"exact": np.zeros(4, np.float32), "some": normal(4, 16), "end": largest}
    found = report_tree(tree, quantize_tree(tree, "mxfp8"))
    assert found.worst == ("end", "some", "exact")
    assert "  -  " in repr(found)


def test_a_report_of_trees_that_do_not_fit():
    tree = {"w": normal(4)}
    q = quantize_tree(tree, "int8")
    with pytest.raises(qn.SchemeError, match="w: the tree given has nothing there"):
        report_tree({"v": tree["w"]}, q)
    with pytest.raises(qn.SchemeError, match="w: x has shape"):
        report_tree({"w": normal(5)}, q)
    with pytest.raises(qn.QuantizedTypeError, match="w: "):
        report_tree(q, q)
    assert repr(report_tree(tree, tree)).endswith("0 arrays, 0 values")
