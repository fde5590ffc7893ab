"""burnpack files: burn's own bytes read and written back, damage and limits, what is refused."""

from __future__ import annotations

import math
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qnumba as qn
from bpk import Q8S, write_one
from qnumba.io import burnpack_metadata
from qnumba.io.burnpack import BurnpackFile, RawTensor, Scalar, write_burnpack
from strategies import arrays, schemes
from support import GOLDEN, assert_same_bits, f32, golden, golden_scheme

cbor2 = pytest.importorskip("cbor2")

FILE = GOLDEN / "quantized.bpk"
TENSORS = golden("burnpack")["tensors"]
METADATA = golden("burnpack")["metadata_cbor_by_scheme"]
STORED = {"F32": np.float32, "F16": np.float16, "UE4M3": ml_dtypes.float8_e4m3fn}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.bpk"


# --- burn's own file


@pytest.mark.parametrize("row", TENSORS, ids=lambda row: row["name"])
def test_burns_tensors_are_what_burn_says(row):
    with BurnpackFile(FILE) as file:
        name, scheme = row["name"], golden_scheme(row["scheme"])
        assert file.raw(name).data.tobytes().hex() == row["record_bytes"]
        assert file.info(name).param_id == row["param_id"]
        q = file[name]
    assert (q.scheme, q.shape) == (scheme, tuple(row["shape"]))
    assert q.codes().reshape(-1).tolist() == row["values"]
    stored = STORED[row["scheme"]["block_dtype"] or "F32"]  # the file rounds them to nearest
    assert_same_bits(q.scales.reshape(-1), f32(row["scales"]).astype(stored).astype(np.float32))
    assert q.global_scale == (None if row["global"] is None else f32([row["global"]])[0])


def test_what_stands_beside_burns_tensors():
    with BurnpackFile(FILE) as file:
        assert list(file)[-1] == "layer.bias"
        assert len(file) == 5
        assert_same_bits(file["layer.bias"], np.array([1.5, -2, 0.25], np.float32))
        assert file.metadata == {"producer": "harness"}
        assert file.scalars == {"lr": Scalar("Float", 0.5), "step": Scalar("UInt", 12)}


def test_burns_file_is_written_back_byte_for_byte(path):
    with BurnpackFile(FILE) as file:
        raw = {name: file.raw(name) for name in file}
        write_burnpack(path, raw, metadata=file.metadata, scalars=file.scalars)
        assert path.read_bytes() == FILE.read_bytes()

        ids = {name: file.raw(name).param_id for name in file}
        ids = {name: number for name, number in ids.items() if number is not None}
        numbers = {"lr": 0.5, "step": 12}
        write_burnpack(path, file, metadata=file.metadata, scalars=numbers, param_ids=ids)
        assert path.read_bytes() == FILE.read_bytes()


@pytest.mark.parametrize("row", METADATA, ids=lambda row: str(list(row["scheme"].values())))
def test_burns_metadata_of_every_scheme_is_written_back_byte_for_byte(row):
    raw = bytes.fromhex(row["metadata_cbor"])
    parsed = burnpack_metadata.parse_metadata(raw)
    assert burnpack_metadata.build_metadata(parsed) == raw
    found = parsed.tensors["t"].dtype
    try:
        scheme = golden_scheme(row["scheme"])
    except qn.SchemeError:  # native packing of integers, lookup without a table
        with pytest.raises(qn.SchemeError):
            burnpack_metadata.from_burn(found)
        return
    assert burnpack_metadata.from_burn(found) == scheme
    assert burnpack_metadata.to_burn(scheme) == found


# --- round trips


@given(st.data())
def test_arrays_come_back(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("round") / "a.bpk"
    written = {}
    for name in data.draw(st.lists(st.text(max_size=4), max_size=3, unique=True)):
        shape = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple))
        scheme = data.draw(schemes(len(shape)))
        q = qn.quantize(data.draw(arrays(shape)), scheme)
        try:
            write_burnpack(path, {name: q})
        except qn.UnsupportedSchemeError as error:
            assert "burn" in str(error)
        else:
            written[name] = q
    write_burnpack(path, written, metadata={"κ": "λ"}, scalars={"a": True, "b": -3, "c": 0.1})
    with BurnpackFile(path) as file:
        assert dict(file) == written
        assert file.metadata == {"κ": "λ"}
        assert [scalar.kind for scalar in file.scalars.values()] == ["Bool", "Int", "Float"]


@pytest.mark.parametrize(
    "dtype",
    ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", ">f4", ">i8"],
)
def test_plain_arrays_come_back(path, dtype):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    write_burnpack(path, {"a": array, "b": array.T, "c": array[:0], "d": array[0, 0]})
    with BurnpackFile(path) as file:
        native = np.dtype(dtype).newbyteorder("=")
        for name, given_ in {"a": array, "b": array.T, "c": array[:0]}.items():
            assert_same_bits(file[name], np.ascontiguousarray(given_).astype(native))
        assert file["d"].shape == ()


def test_bfloat16_is_its_bits(path):
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    write_burnpack(path, {"a": array})
    with BurnpackFile(path) as file:
        assert file.info("a").dtype == "BF16"
        assert_same_bits(file["a"], array.view(np.uint16))


@pytest.mark.parametrize("number", [0.0, 0.5, 0.1, 65504.0, 1e300, -math.inf, 2.0**-24])
def test_floats_take_the_shortest_exact_form(path, number):
    write_burnpack(path, {}, scalars={"x": number})
    sizes = {2: np.float16, 4: np.float32, 8: np.float64}
    with np.errstate(over="ignore"):
        width = next(n for n, kind in sizes.items() if float(kind(number)) == number)
    head = {2: b"\xf9", 4: b"\xfa", 8: b"\xfb"}[width]
    assert b"eFloat" + head in path.read_bytes()
    assert BurnpackFile(path).scalars["x"].value == number


def test_tensors_are_mapped_not_copied(path):
    q = qn.quantize(np.ones((64, 64), np.float32), "int8")
    write_burnpack(path, {"q": q, "x": np.ones(8, np.float32)})
    file = BurnpackFile(path)
    raw = file.raw("q").data
    assert raw.ctypes.data % 256 == 0
    assert np.shares_memory(file["q"].words, raw)
    assert np.shares_memory(file["x"], file.raw("x").data)
    assert not file["x"].flags.writeable
    kept = file["q"]
    file.close()
    assert kept == q
    with pytest.raises(ValueError, match="closed"):
        file["q"]


def test_names_that_are_not_there(path):
    write_burnpack(path, {"weight": np.ones(1)})
    with BurnpackFile(path) as file, pytest.raises(KeyError, match="did you mean 'weight'"):
        file["weights"]
    assert "weights" not in file
    assert "1 tensors" in repr(file)


def test_tensors_begin_at_multiples_of_256(path):
    write_burnpack(path, {f"t{i}": np.ones(i, np.float64) for i in range(70)})
    begins = [entry.begin for entry in BurnpackFile(path)._slots.values()]
    assert not any(begin % 256 for begin in begins)


# --- words and padding


def test_8_bit_words_are_written_as_burn_writes_them(path):
    q = qn.quantize(np.arange(18, dtype=np.float32).reshape(3, 6), "Q8S store=packed_u32")
    write_burnpack(path, {"q": q})
    with BurnpackFile(path) as file:
        assert file.raw("q").data[:18].tobytes() == q.codes().tobytes()
        assert file.info("q").nbytes == 18 + 4
        assert file["q"] == q


def test_8_bit_words_are_read_with_padding_too(path):
    q = qn.quantize(np.arange(6, dtype=np.float32), "Q8S store=packed_u32")
    record = q.to_record()
    scheme = Q8S | {"store": {"PackedU32": 0}}
    write_one(path, {"QFloat": scheme}, (6,), (0, len(record)), record)
    assert BurnpackFile(path)["t"] == q


def test_what_burn_would_misread_is_not_written(path):
    x = np.ones((3, 7), np.float32)
    with pytest.raises(qn.UnsupportedSchemeError, match=r"misread 'q'.*7 codes of 4 bits"):
        write_burnpack(path, {"q": qn.quantize(x, "Q4S")})
    assert not path.exists()
    write_burnpack(path, {"q": qn.quantize(x[0], "Q4S"), "r": qn.quantize(x, "Q4S store=native")})


# --- what burn cannot say


@pytest.mark.parametrize(
    ("scheme", "field", "reason"),
    [
        ("U8 affine", "mode", "zero points"),
        ("Q8S affine", "mode", "zero points"),
        ("nf4", "mode", "table"),
        ("Q4S store=packed_u8", "store", "32 bits"),
        ("Q8S block=256:F32", "block", "at most 255"),
        ("Q8S block=256x1:F32", "block", "at most 255"),
    ],
)
def test_schemes_burn_cannot_express_are_refused(path, scheme, field, reason):
    q = qn.quantize(np.ones((2, 8), np.float32), scheme)
    with pytest.raises(qn.UnsupportedSchemeError, match=f"burn cannot express.*{reason}") as caught:
        write_burnpack(path, {"q": q})
    assert caught.value.field == field
    assert not path.exists()


@pytest.mark.parametrize("bad", [np.array([1j]), np.array(["a"]), np.array([None])])
def test_dtypes_burn_does_not_have_are_refused(path, bad):
    with pytest.raises(qn.QuantizedTypeError, match="burn has"):
        write_burnpack(path, {"a": bad})


@pytest.mark.parametrize("bad", ["1", None, 2**64, -(2**63) - 1, Scalar("Int", 0.5), [1]])
def test_scalars_burn_does_not_have_are_refused(path, bad):
    with pytest.raises(qn.DataError, match="scalar"):
        write_burnpack(path, {}, scalars={"x": bad})


@pytest.mark.parametrize("names", [{5: "a"}, {5: "a", "5": "b"}, {"\ud800": "a"}])
def test_names_that_are_no_text_are_refused(path, names):
    with pytest.raises(qn.DataError, match="text|surrogates"):
        write_burnpack(path, dict.fromkeys(names, np.ones(1)))
    assert not path.exists()


@pytest.mark.parametrize("tensors", [None, [np.ones(1)], np.ones(1)])
def test_arrays_without_names_are_refused(path, tensors):
    with pytest.raises(qn.QuantizedTypeError, match="names"):
        write_burnpack(path, tensors)


def test_other_arguments_are_checked_before_anything_is_written(path):
    for arguments in (
        {"metadata": {"a": 1}},
        {"param_ids": {"a": -1}},
        {"param_ids": {"a": 2**64}},
    ):
        with pytest.raises(qn.DataError, match=r"metadata|param_id"):
            write_burnpack(path, {"a": np.ones(1)}, **arguments)
    with pytest.raises(qn.DataError, match="row of bytes"):
        write_burnpack(path, {"a": RawTensor("F32", (1,), np.ones(1, np.float32))})
    assert not path.exists()


def test_lookup_tensors_give_their_bytes(path):
    q = qn.quantize(np.linspace(-1, 1, 64, dtype=np.float32), qn.Scheme.parse("nf4"))
    record = q.to_record()
    size = {"storage": [64, 1, 1, 1, 1], "len": 1}
    scheme = Q8S | {"value": "Q4S", "store": {"PackedU32": 0}, "mode": "Lookup"}
    scheme["block"] = {"size": size, "dtype": "F32"}
    write_one(path, {"QFloat": scheme}, (64,), (0, len(record)), record)
    with BurnpackFile(path) as file:
        with pytest.raises(qn.DecodeError, match="table"):
            file["t"]
        data = file.raw("t").data
        known = q.scheme.replace(value="Q4S")
        assert_same_bits(qn.QArray.from_record(data, known, (64,)).dequantize(), q.dequantize())


def test_schemes_without_a_meaning_here_give_their_bytes(path):
    write_one(path, {"QFloat": Q8S | {"store": {"PackedNative": 0}}}, (4,), (0, 8), bytes(8))
    with BurnpackFile(path) as file:
        assert file.raw("t").data.size == 8
        assert "PackedNative" in file.info("t").dtype
        with pytest.raises(qn.DecodeError, match="doesn't support native packing"):
            file["t"]


# --- the library


def test_without_the_library_the_error_says_what_to_install(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cbor2", None)
    with pytest.raises(ImportError, match=r'pip install "qnumba\[burn\]"'):
        BurnpackFile(FILE)
    with pytest.raises(ImportError, match=r'pip install "qnumba\[burn\]"'):
        write_burnpack(path, {})
    assert not path.exists()
