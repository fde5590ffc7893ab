"""What the command line says of odd files, names and arguments, and what it asks first."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.event import trigger_event

import qnumba as qn
from qnumba.cli import convert, main, show
from qnumba.io.safetensors import save_safetensors

X = np.random.default_rng(5).standard_normal((4, 64)).astype(np.float32)
NAN = X.copy()
NAN[1, 2] = np.nan


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("n.npy", NAN)
    save_safetensors("m.safetensors", {"a": X, "b": NAN, "c": X, "d": X, "ids": np.arange(3)})


@pytest.fixture
def say(capsys):
    """Run a command; return its status and all it said."""

    def run(*words):
        try:
            status = main([str(word) for word in words])
        except SystemExit as end:
            status = end.code
        return status, "".join(capsys.readouterr())

    return run


# --- files ---


@pytest.mark.skipif(os.name != "posix", reason="names of bytes")
@pytest.mark.parametrize("ending", ["qnb", "safetensors"])
def test_a_name_that_is_no_text(say, ending):
    name = os.fsdecode(b"\xff.npy")
    np.save(name, X)
    out = os.fsdecode(b"\xfe.") + ending
    assert say("quantize", name, "--scheme", "int8", "-o", out)[0] == 0
    status, told = say("info", out, "--json")
    assert status == 0
    assert json.loads(told)["arrays"][0]["name"] == ("\\udcff", "\\udcfe")[ending == "qnb"]


def test_a_name_cannot_move_the_cursor(say):
    name = "a\nb\x1b[2J.qnb"
    for words in (("quantize", "x.npy", "--scheme", "int8", "-o"), ("demo", "-o")):
        status, told = say(*words, name)
        assert status == 0
        assert r"a\nb\x1b[2J.qnb" in told
        assert "\x1b" not in told


def test_long_names_do_not_widen_a_table(say):
    save_safetensors("long.safetensors", {"n" * 5000: X, "w": X})
    _, told = say("info", "long.safetensors")
    assert max(map(len, told.splitlines())) < 150
    assert "nnn..." in told


def test_a_file_that_is_no_container(say):
    Path("no.qnb").write_bytes(b"something else")
    status, told = say("info", "no.qnb")
    assert status == 1
    assert "no.qnb is no .qnb file" in told
    assert "from_record" not in told


# --- NaN, patterns ---


def test_an_array_with_nan_is_left_out_and_named(say):
    status, told = say("compare", "m.safetensors", "--schemes", "int8", "--json")
    assert status == 0
    (row,) = json.loads(told)["rows"]
    assert row["snr_db"] > 20
    (skipped,) = row["skipped"]
    assert skipped["name"] == "b"
    assert "--nonfinite clip" in skipped["reason"]
    status, told = say("compare", "m.safetensors", "--schemes", "int8")
    assert "1 left out; b: the array holds 1 NaN" in told


def test_nothing_to_compare_is_refused_with_the_reason(say):
    for words in (("n.npy",), ("m.safetensors", "--include", "b")):
        status, told = say("compare", *words)
        assert status == 1
        assert ": ".join([words[0], *words[2:], "the array holds 1 NaN"]) in told


@pytest.mark.parametrize("command", ["quantize", "compare"])
def test_patterns_that_match_nothing_are_named_with_some_arrays(say, command):
    more = ("--scheme", "int8", "-o", "q.safetensors") if command == "quantize" else ()
    status, told = say(command, "m.safetensors", *more, "--include", "zzz", "y*", "--exclude", "b")
    assert status == 1
    assert "--include zzz y* --exclude b leaves no array of m.safetensors" in told
    assert told.endswith(", and 2 more\n")


# --- words ---


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("pass nonfinite='clip' or", "pass --nonfinite clip or"),
        ("use scale_rounding=up or nearest", "use --scale-rounding up or nearest"),
        ("such as block=32 or block=(128, 128)", "such as block=32 or block=128x128"),
        ("drop tensor_scale=, or", "drop tensor=, or"),
        ('use mode="affine", or', "use affine, or"),
        ("the word 'nonfinite=keep' is not", "the word 'nonfinite=keep' is not"),
        ("the word 'mode=affine' is not", "the word 'mode=affine' is not"),
    ],
)
def test_messages_speak_the_words_of_the_command_line(text, spoken):
    assert show.spoken(text) == spoken


def test_a_wrong_name_has_the_same_hint_everywhere(say):
    _, checked = say("check", "zz")
    _, refused = say("quantize", "x.npy", "--scheme", "zz", "-o", "x.qnb")
    for told in (checked, refused):
        assert all(name in told for name in qn.PRESETS)
        assert "nearest" not in told


def test_a_shape_that_nobody_gave_is_an_example(say):
    assert "an example of shape 4096 x 4096" in say("check", "int4")[1]
    assert "example" not in say("check", "int4", "--shape", "4X32")[1]


@pytest.mark.parametrize("text", ["", " ", "1_0", "٣", "3x", "-1", "9" * 30, "9" * 5000, "x"])
def test_what_is_no_shape(say, text):
    status, told = say("check", "int4", f"--shape={text}")
    assert status == 2
    assert "is not a shape" in told


def test_a_shape_beyond_memory(say):
    assert "larger than any memory" in say("check", "int4", "--shape", "9999999999x9999999999")[1]


def test_one_is_not_many(say):
    np.save("one.npy", X[0, :1])
    assert "1 array, 1 value," in say("info", "one.npy")[1]


# --- before the work ---


@pytest.mark.parametrize("picture", ["x.zzz", "x", "no/x.svg"])
def test_a_chart_that_cannot_be_drawn_is_refused_before_measuring(say, monkeypatch, picture):
    monkeypatch.setattr("qnumba.accuracy.measure_grid", pytest.fail)
    status, told = say("accuracy", "--plot", picture)
    assert status == 2
    assert picture in told


def test_a_chart_without_matplotlib_is_refused_before_measuring(say, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, told = say("accuracy", "--plot", "x.svg")
    assert status == 2
    assert 'pip install "qnumba[plot]"' in told


def test_compiling_is_said_once(capsys, monkeypatch):
    def quantize(*args, **options):
        for _ in range(2):
            with trigger_event("numba:compile", data={}):
                pass
        return qn.quantize(*args, **options)

    monkeypatch.setattr(convert, "quantize", quantize)
    for _ in range(2):
        assert main(["quantize", "x.npy", "--scheme", "int8", "-o", "x.qnb"]) == 0
        told = capsys.readouterr()
        assert told.err == f"{show.COMPILING}\n"
        assert show.COMPILING not in told.out
