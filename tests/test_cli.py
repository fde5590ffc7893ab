"""The command line: what it writes, what it says, how it ends."""

import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import qnumba as qn
from qnumba.cli import main
from qnumba.cli.inspect import PURPOSES
from qnumba.cli.show import COMPILING
from qnumba.io.checkpoint import unpack_qarray
from qnumba.io.safetensors import SafetensorsFile, save_safetensors

X = np.random.default_rng(5).standard_normal((24, 48)).astype(np.float32)
MODEL = {
    "a.weight": X,
    "a.bias": X[0],
    "b.weight": X[:, ::-1].astype(np.float16),
    "ids": np.arange(6),
    "mask": np.array([True, False]),
    "scalar": np.array(2.5),
}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    save_file(
        {name: np.array(x, order="C") for name, x in MODEL.items()}, "m.safetensors", {"k": "v"}
    )


@pytest.fixture
def qnumba(capsys):
    """Run a command that succeeds; return what it printed."""

    def run(*words):
        assert main([str(word) for word in words]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys):
    """Run a command that fails; return its one line."""

    def run(*words, status=1):
        assert main([str(word) for word in words]) == status
        out, err = capsys.readouterr()
        err = err.replace(f"{COMPILING}\n", "")
        assert out == ""
        assert err.count("\n") == 1
        assert err.startswith("qnumba: ")
        return err

    return run


def read(name):
    return qn.QArray.from_bytes(Path(name).read_bytes())


def same_bits(left, right):
    assert (left.dtype, left.shape) == (right.dtype, right.shape)
    return left.tobytes() == right.tobytes()


# --- quantize and dequantize ---


@pytest.mark.parametrize("scheme", [*qn.PRESETS, "Q8S block=2x16:F16", "E5M2 block=5"])
def test_an_array_through_a_container(qnumba, scheme):
    qnumba("quantize", "x.npy", "--scheme", scheme, "-o", "x.qnb")
    q = read("x.qnb")
    assert q == qn.quantize(X, scheme)
    assert q.options == qn.quantize(X, scheme).options
    qnumba("dequantize", "x.qnb", "-o", "y.npy")
    assert same_bits(np.load("y.npy"), q.dequantize())


@pytest.mark.parametrize("scheme", qn.PRESETS)
def test_an_array_through_safetensors(qnumba, scheme):
    qnumba("quantize", "x.npy", "--scheme", scheme, "-o", "x.safetensors")
    qnumba("dequantize", "x.safetensors", "-o", "y.npy")
    assert same_bits(np.load("y.npy"), qn.quantize(X, scheme).dequantize())


@pytest.mark.parametrize("scheme", qn.PRESETS)
def test_a_model_through_safetensors(qnumba, scheme):
    qnumba("quantize", "m.safetensors", "--scheme", scheme, "-o", "q.safetensors")
    with SafetensorsFile("q.safetensors") as file:
        assert file.metadata["k"] == "v"
        assert unpack_qarray(file, "b.weight") == qn.quantize(MODEL["b.weight"], scheme)
        assert same_bits(file["ids"], MODEL["ids"])
    qnumba("dequantize", "q.safetensors", "-o", "y.safetensors")
    back = load_file("y.safetensors")
    assert back.keys() == MODEL.keys()
    for name in ("a.weight", "b.weight"):
        x = MODEL[name]
        assert same_bits(back[name], qn.quantize(x, scheme).dequantize(x.dtype))
    for name in ("ids", "mask"):
        assert same_bits(back[name], MODEL[name])


def test_what_cannot_take_the_scheme_is_copied_and_named(qnumba):
    words = ("quantize", "m.safetensors", "--scheme", "fp8_block", "-o", "q.safetensors")
    text = qnumba(*words)
    assert "2 of 6 arrays" in text
    reasons = {row["name"]: row["reason"] for row in json.loads(qnumba(*words, "--json"))["copied"]}
    expected = {"a.bias": "extents", "ids": "int64", "mask": "bool", "scalar": "extents"}
    assert reasons.keys() == expected.keys()
    for name, reason in reasons.items():
        assert expected[name] in reason
        assert reason in text
        assert same_bits(SafetensorsFile("q.safetensors")[name], MODEL[name])


def test_patterns_select_arrays(qnumba):
    words = ["quantize", "m.safetensors", "--scheme", "int8", "-o", "q.safetensors", "--json"]
    told = json.loads(qnumba(*words, "--include", "*.weight", "*.bias", "--exclude", "b.*"))
    assert {row["name"] for row in told["changed"]} == {"a.weight", "a.bias"}
    told = json.loads(qnumba(*words, "--include", "b.*", "--include", "a.bias"))
    assert {row["name"] for row in told["changed"]} == {"b.weight", "a.bias"}
    assert {row["name"]: row["reason"] for row in told["copied"]}["a.weight"] == "not selected"


def test_options_reach_the_arithmetic(qnumba):
    np.save("n.npy", np.array([0.5, 1.5, -2.5, np.nan, 127.0]))
    options = {"rounding": "away", "nonfinite": "clip", "scale_rounding": "nearest"}
    words = [word for key, to in options.items() for word in (f"--{key.replace('_', '-')}", to)]
    qnumba("quantize", "n.npy", "--scheme", "int8", "-o", "n.qnb", *words)
    q = read("n.qnb")
    assert q == qn.quantize(np.load("n.npy"), "int8", **options)
    assert q.codes().tolist() == [1, 2, -3, 0, 127]


def test_a_file_may_be_quantized_in_steps(qnumba):
    first = ("--scheme", "nvfp4", "--include", "a.weight", "-o", "q.safetensors")
    qnumba("quantize", "m.safetensors", *first)
    again = ("--scheme", "int8", "-o", "q.safetensors", "--force")
    text = qnumba("quantize", "q.safetensors", *again)
    assert "1 already quantized" in text
    with SafetensorsFile("q.safetensors") as file:
        assert unpack_qarray(file, "a.weight") == qn.quantize(X, "nvfp4")
        assert unpack_qarray(file, "a.bias") == qn.quantize(X[0], "int8")
        assert "scalar_scale" in file


def test_names_that_would_collide_are_left_alone(qnumba):
    save_safetensors("c.safetensors", {"w": X, "w_scale": X[0], "v": X})
    told = json.loads(
        qnumba("quantize", "c.safetensors", "--scheme", "int8", "-o", "q.safetensors", "--json")
    )
    assert "'w_scale'" in {row["name"]: row["reason"] for row in told["copied"]}["w"]
    assert same_bits(load_file("q.safetensors")["w"], X)


def test_bfloat16_tensors(qnumba, monkeypatch):
    x = X.astype(ml_dtypes.bfloat16)
    save_safetensors("b.safetensors", {"w": x})
    qnumba("quantize", "b.safetensors", "--scheme", "int4", "-o", "q.safetensors")
    with SafetensorsFile("q.safetensors") as file:
        q = unpack_qarray(file, "w")
    assert q == qn.quantize(x, "int4")
    assert q.source_dtype == "bfloat16"
    qnumba("dequantize", "q.safetensors", "-o", "y.safetensors")
    with SafetensorsFile("y.safetensors") as file:
        assert same_bits(file.view("w"), q.dequantize("bfloat16"))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)  # as where it is not installed
    qnumba("quantize", "b.safetensors", "--scheme", "int4", "-o", "r.safetensors")
    assert Path("q.safetensors").read_bytes() == Path("r.safetensors").read_bytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_dequantize_to_a_dtype(qnumba, dtype):
    qnumba("quantize", "x.npy", "--scheme", "int8", "-o", "x.qnb")
    text = qnumba("dequantize", "x.qnb", "-o", "y.safetensors", "--dtype", dtype)
    assert dtype in text
    with SafetensorsFile("y.safetensors") as file:
        assert same_bits(file.view("x"), qn.quantize(X, "int8").dequantize(dtype))


def test_integers_and_empty_arrays(qnumba):
    for name, x in {"i": np.arange(300), "e": np.zeros((0, 4), np.float16)}.items():
        np.save(f"{name}.npy", x)
        qnumba("quantize", f"{name}.npy", "--scheme", "uint8", "-o", f"{name}.qnb")
        qnumba("dequantize", f"{name}.qnb", "-o", "y.npy")
        assert np.load("y.npy").shape == x.shape


def test_output_is_the_input_only_by_force(qnumba, refused):
    Path("link.safetensors").symlink_to("m.safetensors")
    before = Path("m.safetensors").read_bytes()
    for same in ("m.safetensors", "./m.safetensors", "link.safetensors"):
        out = ("-o", same)
        assert "--force" in refused("quantize", "m.safetensors", "--scheme", "int8", *out, status=2)
        assert "--force" in refused("dequantize", "m.safetensors", *out, status=2)
    assert Path("m.safetensors").read_bytes() == before
    qnumba("quantize", "m.safetensors", "--scheme", "int8", "-o", "m.safetensors", "--force")
    qnumba("dequantize", "m.safetensors", "-o", "m.safetensors", "--force")
    assert load_file("m.safetensors").keys() == MODEL.keys()


# --- looking ---


def test_info_of_every_format(qnumba):
    qnumba("quantize", "x.npy", "--scheme", "nvfp4", "-o", "x.qnb")
    qnumba("quantize", "m.safetensors", "--scheme", "nvfp4", "-o", "q.safetensors")
    assert "24 x 48" in qnumba("info", "x.npy")
    assert "E2M1 block=16:UE4M3 tensor=F32" in qnumba("info", "x.qnb")
    text = qnumba("info", "q.safetensors")
    assert "k: v" in text
    assert "a.weight_scale" not in text
    rows = json.loads(qnumba("info", "q.safetensors", "--json"))["arrays"]
    by_name = {row["name"]: row for row in rows}
    assert by_name["a.weight"]["scheme"] == "E2M1 block=16:UE4M3 tensor=F32"
    assert by_name["a.weight"]["shape"] == [24, 48]
    assert by_name["ids"]["scheme"] is None


def test_presets(qnumba):
    rows = json.loads(qnumba("presets", "--json"))["presets"]
    assert {row["name"]: row["scheme"] for row in rows} == {
        name: str(scheme) for name, scheme in qn.PRESETS.items()
    }
    assert PURPOSES.keys() == qn.PRESETS.keys()
    assert all(name in qnumba("presets") for name in qn.PRESETS)


def test_check_of_what_fits(qnumba):
    text = qnumba("check", "nvfp4", "--shape", "384x384", "--dtype", "bfloat16")
    assert text.startswith("ok: E2M1 block=16:UE4M3 tensor=F32")
    told = json.loads(qnumba("check", "Q4S block=32:F16", "--shape", "(3,64)", "--json"))
    assert told["scales"] == 6
    assert told["bytes"] == qn.quantize(np.zeros((3, 64)), "Q4S block=32:F16").nbytes
    assert json.loads(qnumba("check", "int8", "--shape", "()", "--json"))["shape"] == []


@pytest.mark.parametrize(
    ("words", "field", "nearest"),
    [
        (["Q4S block=0:F16"], "block", "Q4S"),
        (["int9"], "scheme", ""),
        (["fp8_block", "--shape", "64"], "block", "E4M3"),
        (["int8", "--dtype", "complex64"], "dtype", ""),
        (["int8", "--scale-rounding", "floor"], "scale_rounding", ""),
    ],
)
def test_check_of_what_does_not(capsys, words, field, nearest):
    assert main(["check", *words]) == 1
    text = capsys.readouterr().out
    assert text.startswith(f"{field}: ")
    assert "\n  fix: " in text
    assert ("\n  nearest: " in text) == bool(nearest)
    assert main(["check", *words, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"][0]
    assert found["field"] == field
    assert (found["nearest"] or "").startswith(nearest)


def test_compare(qnumba):
    words = ("compare", "x.npy", "--schemes", "int8", "Q4S block=32:F16", "Q8S block=1x1x1x2")
    rows = {row["scheme"]: row for row in json.loads(qnumba(*words, "--json"))["rows"]}
    expected = qn.report(X, qn.quantize(X, "int8"))
    assert rows["int8"]["max_error"] == pytest.approx(expected.max_error)
    assert rows["int8"]["snr_db"] > rows["Q4S block=32:F16"]["snr_db"] > 10
    text = qnumba(*words)
    assert all(scheme in text for scheme in rows)


def test_compare_of_several_arrays(qnumba):
    words = ("compare", "m.safetensors", "--include", "*.weight", "--json")
    told = json.loads(qnumba(*words))
    assert told["arrays"] == ["a.weight", "b.weight"]
    assert [row["scheme"] for row in told["rows"]] == list(qn.PRESETS)
    text = qnumba("compare", "m.safetensors", "--schemes", "fp8_block")
    assert "2 left out" in text


def test_compare_of_exact_and_empty_arrays(qnumba):
    np.save("z.npy", np.zeros(8))
    np.save("e.npy", np.zeros((0, 3)))
    for name in ("z.npy", "e.npy"):
        assert "int8" in qnumba("compare", name, "--schemes", "int8")
        json.loads(
            qnumba("compare", name, "--schemes", "int8", "--json"), parse_constant=pytest.fail
        )


def test_demo(qnumba):
    text = qnumba("demo")
    assert "the same bits" in text
    assert all(f"\n{name} " in text for name in qn.PRESETS)
    told = json.loads(qnumba("demo", "-o", "kept.qnb", "--json"))
    assert told["identical"]
    assert read("kept.qnb").shape == (384, 384)


# --- refusing ---


def test_errors_in_data_and_schemes_are_one_line(refused):
    np.save("n.npy", np.array([1.0, np.nan]))
    np.save("c.npy", np.ones(3, complex))
    save_safetensors("n.safetensors", {"w\n\x1b[2J": np.array([np.inf])})
    Path("bad.qnb").write_bytes(b"\x89QNB but not really")
    Path("bad.safetensors").write_bytes(b"\xff" * 16)
    out = ("--scheme", "int8", "-o", "o.safetensors")
    assert "1 NaN" in refused("quantize", "n.npy", *out)
    assert r"w\n\x1b[2J" in refused("quantize", "n.safetensors", *out)
    assert "complex" in refused("quantize", "c.npy", *out)
    assert "No such file" in refused("quantize", "none.npy", *out)
    assert "no/o.qnb" in refused("quantize", "x.npy", "--scheme", "int8", "-o", "no/o.qnb")
    assert "int9" in refused("quantize", "x.npy", "--scheme", "int9", "-o", "o.qnb")
    assert "floor" in refused("quantize", "x.npy", *out, "--scale-rounding", "floor")
    assert "int64" in refused("quantize", "m.safetensors", *out, "--include", "ids")
    assert "not quantized" in refused("dequantize", "x.npy", "-o", "o.npy")
    assert "bad.qnb" in refused("dequantize", "bad.qnb", "-o", "o.npy")
    assert "bad.safetensors" in refused("info", "bad.safetensors")
    assert "convert to one of float32" in refused("compare", "c.npy")
    assert "convert to one of float32" in refused("quantize", "c.npy", *out)
    assert not Path("o.safetensors").exists()


def test_errors_of_usage(refused, capsys):
    for words in (
        ("quantize", "x.npy", "--scheme", "int8", "-o", "o.txt"),
        ("quantize", "x.txt", "--scheme", "int8", "-o", "o.qnb"),
        ("quantize", "m.safetensors", "--scheme", "int8", "-o", "o.qnb"),
        ("dequantize", "m.txt", "-o", "o.npy"),
        ("info", "x"),
    ):
        assert "--help" in refused(*words, status=2)
    for words in (["quantize"], ["no"], ["check", "int8", "--shape", "3x"], ["info", "--no"]):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main([]) == 2
    assert "demo" in capsys.readouterr().err


def test_a_failed_command_leaves_no_file(refused):
    save_safetensors("n.safetensors", {"a": X, "b": np.array([np.nan])})
    before = set(Path().iterdir())
    refused("quantize", "n.safetensors", "--scheme", "int8", "-o", "o.safetensors")
    assert set(Path().iterdir()) == before
