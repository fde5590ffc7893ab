"""burnpack files that are old, damaged or too large are refused before they are read."""

from __future__ import annotations

import numpy as np
import pytest

import qnumba as qn
from bpk import Q8S, write_file, write_one
from qnumba.io import burnpack, burnpack_metadata
from qnumba.io.burnpack import BurnpackFile, write_burnpack
from support import GOLDEN

pytest.importorskip("cbor2")

FILE = GOLDEN / "quantized.bpk"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.bpk"


def broken(path, match):
    with pytest.raises(qn.DecodeError, match=match):
        BurnpackFile(path)


def test_files_of_burn_0_21_are_named(path):
    old = {"value": "Q8S", "param": "F32", "store": "Native", "level": "Tensor"}
    write_one(path, {"QFloat": old | {"mode": "Symmetric"}}, (4,), (0, 8), bytes(8))
    broken(path, "keys of burn 0.21.*0.22 or later")


def qfloat(**changes):
    return {"QFloat": Q8S | changes}


SIZE = {"storage": [2, 1, 1, 1, 1], "len": 1}


@pytest.mark.parametrize(
    ("dtype", "match"),
    [
        ("F8", "unknown dtype 'F8'"),
        ("Bool", "unknown dtype"),
        ({"Bool": "U16"}, "unknown dtype"),
        (5, "unknown dtype"),
        (qfloat(value="Q3S"), "unknown value 'Q3S'"),
        (qfloat(value="U8"), "unknown value"),
        (qfloat(store="PackedU32"), "no packed axis"),
        (qfloat(store={"Native": 0}), "unknown store"),
        (qfloat(store={"PackedU32": -1}), "no axis"),
        (qfloat(store={"PackedU32": True}), "no axis"),
        (qfloat(store={"PackedU32": 0, "Native": 0}), "unknown store"),
        (qfloat(mode="Affine"), "unknown mode"),
        (qfloat(tensor="F64"), "unknown scale dtype"),
        (qfloat(block={"size": SIZE, "dtype": "I8"}), "unknown scale dtype"),
        (qfloat(block={"size": SIZE}), "lacks 'dtype'"),
        (qfloat(block=[32]), "should be a map"),
        (qfloat(block={"size": SIZE | {"len": 6}, "dtype": "F32"}), "none that burn makes"),
        (qfloat(block={"size": SIZE | {"len": 0}, "dtype": "F32"}), "none that burn makes"),
        (qfloat(block={"size": {"storage": [1, 2, 1, 1, 1], "len": 2}, "dtype": "F32"}), "none"),
        (qfloat(block={"size": {"storage": [0, 1, 1, 1, 1], "len": 1}, "dtype": "F32"}), "none"),
        (qfloat(block={"size": {"storage": [256, 1, 1, 1, 1], "len": 1}, "dtype": "F32"}), "none"),
        (qfloat(block={"size": {"storage": [2], "len": 1}, "dtype": "F32"}), "none that burn"),
        (qfloat(extra=1), "'extra', unknown"),
        ({"QFloat": None}, "should be a map"),
        (qfloat(), "takes 5 bytes, but has 4"),
        ("F64", "takes 8 bytes, but has 4"),
    ],
)
def test_dtypes_that_are_none(path, dtype, match):
    broken(write_one(path, dtype), match)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"shape": [2]}, "takes 8 bytes"),
        ({"shape": [-1]}, "shape must be"),
        ({"shape": [1.0]}, "shape must be"),
        ({"shape": [True]}, "shape must be"),
        ({"shape": [2**62, 2**62]}, "larger than any memory"),
        ({"shape": [1] * 65}, "65 axes"),
        ({"offsets": [0]}, "not a begin and an end"),
        ({"offsets": [4, 0]}, "not a begin and an end"),
        ({"offsets": [0, 8], "shape": [2]}, "cut short"),
        ({"data": bytes(5)}, "belong to nothing"),
        ({"param_id": -1}, "param_id"),
        ({"param_id": "7"}, "param_id"),
        ({"other": 7}, "'other', unknown"),
    ],
)
def test_entries_that_are_wrong(path, change, match):
    broken(write_one(path, **change), match)


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        (b"", "no CBOR"),
        (b"\xff", "no CBOR"),
        (b"\xa1", "no CBOR"),
        (b"\xa0\x00", "1 bytes of the metadata"),
        (b"\x81" * 500 + b"\x00", "no CBOR.*depth"),
        (b"\xa2" + b"\x67tensors\xa0" * 2, "no CBOR.*[Dd]uplicate"),
        (b"\x9b" + b"\xff" * 8, "no CBOR"),
        (b"\x7b" + b"\xff" * 8, "no CBOR"),
        (b"\xa1\x61\xff\x00", "no CBOR"),
        ([1], "should be a map"),
        ({1: 2}, "should be a map"),
        ({"tensors": []}, "should be a map"),
        ({"tensors": {"t": 1}}, "should be a map"),
        ({"tensors": {"t": {}}}, "lacks"),
        ({"other": {}}, "unknown"),
        ({"metadata": {"a": 1}}, "is not text"),
        ({"scalars": {"a": 1}}, "is not one number"),
        ({"scalars": {"a": {"Int": 1.0}}}, "not of kind Int"),
        ({"scalars": {"a": {"Int": 2**63}}}, "outside 64 bits"),
        ({"scalars": {"a": {"UInt": True}}}, "not of kind UInt"),
        ({"scalars": {"a": {"Complex": 1}}}, "unknown kind"),
    ],
)
def test_metadata_that_are_wrong(path, metadata, match):
    broken(write_file(path, metadata), match)


def test_headers_that_are_wrong(path):
    broken(write_file(path, {}, magic=1), "not a burnpack file")
    broken(write_file(path, {}, version=2), "version 2")
    broken(write_file(path, {}, length=2), "claim 2 bytes")
    broken(write_file(path, {}, length=2**32 - 1), "claim")
    path.write_bytes(b"NRUB")
    broken(path, "at least 10 bytes")
    path.write_bytes(b"")
    broken(path, "at least 10 bytes")


def test_tensors_may_not_overlap(path):
    entry = {"dtype": "U8", "shape": [4]}
    offsets = {"a": [0, 4], "b": [3, 7]}
    tensors = {name: entry | {"data_offsets": place} for name, place in offsets.items()}
    broken(write_file(path, {"tensors": tensors}, bytes(7)), "two tensors claim byte 3")


def test_values_that_cannot_be_are_found_when_read(path):
    write_one(path, {"Bool": "Native"}, (2,), (0, 2), b"\x01\x02")
    with pytest.raises(qn.DecodeError, match="Bool"):
        BurnpackFile(path)["t"]
    write_one(path, qfloat(), (1,), (0, 5), b"\x01" + np.float32(np.nan).tobytes())
    with pytest.raises(qn.DecodeError, match=r"a\.bpk: 't': scale 0"):
        BurnpackFile(path)["t"]


def read_all(path):
    with BurnpackFile(path) as file:
        return {name: file[name] for name in file}


@pytest.mark.parametrize("end", range(0, FILE.stat().st_size, 13))
def test_cut_files_are_found(path, end):
    path.write_bytes(FILE.read_bytes()[:end])
    with pytest.raises(qn.DecodeError):
        read_all(path)


def test_damage_is_found_or_harmless(path):
    whole = np.frombuffer(FILE.read_bytes(), np.uint8)
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(600):
        damaged = whole.copy()
        for place in rng.integers(0, 700, rng.integers(1, 4)):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged.tobytes())
        try:
            read_all(path)
        except qn.DecodeError:
            refused += 1
    assert refused > 300


# --- limits of burn's reader, as a writer and as a reader has them


@pytest.mark.parametrize(
    ("limit", "value", "match"),
    [
        ("MAX_METADATA", 20, "claim|metadata; burn reads at most 20"),
        ("MAX_TENSORS", 1, "2 tensors; burn reads at most 1"),
        ("MAX_TENSOR", 15, "16 bytes in a tensor"),
        ("MAX_FILE", 500, "bytes in a file; burn reads at most 500"),
    ],
)
def test_limits(path, monkeypatch, limit, value, match):
    tensors = {"a": np.ones(2), "b": np.ones(1)}
    write_burnpack(path, tensors)
    monkeypatch.setattr(burnpack, limit, value)
    broken(path, match)
    with pytest.raises(ValueError, match=match):
        write_burnpack(path, tensors)


def test_the_limits_are_burns():
    limits = (burnpack.MAX_METADATA, burnpack.MAX_TENSORS, burnpack.MAX_TENSOR, burnpack.MAX_FILE)
    assert limits == (100 * 2**20, 100_000, 10 * 2**30, 100 * 2**30)
    assert burnpack_metadata.MAX_DEPTH == 128
