"""The .npy reader and writer, against numpy.save and against hostile files; the embedded array."""

import struct

import ml_dtypes
import numpy as np
import pytest

import qnumba as qn
from qnumba.data import attention_weight
from qnumba.errors import DecodeError, QuantizedTypeError
from qnumba.io.npy import read_npy, write_npy

DTYPES = ["?", "<i1", ">i2", "<u8", "<f2", ">f4", "<f8", "<c16"]
SHAPES = [(), (0,), (7,), (2, 0, 3), (3, 4, 5)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.npy"


def npy(header, data=b"", version=(1, 0), length=None):
    raw = header.encode("latin1")
    size = struct.pack("<H" if version == (1, 0) else "<I", len(raw) if length is None else length)
    return b"\x93NUMPY" + bytes(version) + size + raw + data


def header(descr="'<f4'", order="False", shape="(2,)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", "CF")
def test_what_numpy_saves_is_mapped(path, dtype, shape, order):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype, order=order)
    np.save(path, array)
    mapped = read_npy(path)
    assert mapped.dtype == array.dtype
    assert np.array_equal(mapped, array)
    assert not mapped.flags.writeable
    assert not mapped.flags.owndata


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_we_write_numpy_loads(path, dtype):
    array = np.arange(24).reshape(4, 6).astype(dtype)
    for view in (array, array.T, array[::-2], np.asfortranarray(array), array[:0]):
        write_npy(path, view)
        loaded = np.load(path)
        assert loaded.dtype == view.dtype
        assert np.array_equal(loaded, view)


def test_a_longer_header_is_read(path):
    path.write_bytes(npy(header(), b"\0" * 8, version=(2, 0)))
    assert read_npy(path).tolist() == [0, 0]


HOSTILE = {
    "empty": b"",
    "not npy": b"PK\x03\x04 and more than that",
    "version 9": npy(header(), b"\0" * 8, (9, 0)),
    "records": npy(header("[('a', '<f4')]"), b"\0" * 8, (3, 0)),
    "records in version 1": npy(header("[('a', '<f4')]"), b"\0" * 8),
    "objects": npy(header("'|O'"), b"\0" * 16),
    "text": npy(header("'<U1'"), b"\0" * 8),
    "raw bytes, as bfloat16 is saved": npy(header("'|V2'"), b"\0" * 4),
    "unknown dtype": npy(header("'<f3'"), b"\0" * 8),
    "dtype is a number": npy(header("4"), b"\0" * 8),
    "dtype is code": npy(header("__import__('os')"), b"\0" * 8),
    "no header": npy("", b"\0" * 8),
    "header cut": npy(header(), length=500),
    "header too long": npy(header(), version=(2, 0), length=2**31),
    "not a dict": npy("[1, 2]\n"),
    "no shape": npy("{'descr': '<f4', 'fortran_order': False}\n"),
    "extra key": npy(header()[:-2] + "'more': 1}\n", b"\0" * 8),
    "deep": npy("(" * 5000 + ")" * 5000, b"\0" * 8),
    "shape is a list": npy(header(shape="[2]"), b"\0" * 8),
    "negative shape": npy(header(shape="(-2,)"), b"\0" * 8),
    "negative shapes": npy(header(shape="(-2, -1)"), b"\0" * 8),
    "boolean shape": npy(header(shape="(True, 2)"), b"\0" * 8),
    "huge shape": npy(header(shape="(2**99,)")),
    "huge extent": npy(header(shape=f"({2**64},)")),
    "product wraps": npy(header(shape=f"({2**62}, 4)")),
    "product overflows beside 0": npy(header(shape=f"({2**62}, 4, 0)")),
    "many axes": npy(header(shape="(" + "1," * 100 + ")"), b"\0" * 4),
    "order is a number": npy(header(order="3"), b"\0" * 8),
    "cut short": npy(header(), b"\0" * 7),
    "bytes too many": npy(header(), b"\0" * 9),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused(path, case):
    path.write_bytes(HOSTILE[case])
    with pytest.raises(DecodeError, match=r"a\.npy") as caught:
        read_npy(path)
    told = str(caught.value)
    assert len(told) < 1000
    assert "ast." not in told
    assert ("bfloat16" in told) == ("raw bytes" in case)


@pytest.mark.filterwarnings("ignore")  # NumPy warns of odd headers before it refuses them
def test_mutated_files_are_refused_or_equal_what_numpy_loads(path):
    """3,000 files with bytes changed; NumPy is the judge of those we take."""
    rng = np.random.default_rng(3)
    np.save(path, np.arange(6, dtype=np.float32).reshape(2, 3))
    original = path.read_bytes()
    taken = 0
    for _ in range(3000):
        raw = bytearray(original)
        for at in rng.integers(0, 80, rng.integers(1, 4)):
            raw[at] = rng.choice(list(b"0123456789-.,:()'<>bfiuVO \x93\x00\xff"))
        path.write_bytes(raw)
        try:
            mapped = read_npy(path)
        except DecodeError:
            continue
        loaded = np.load(path, allow_pickle=False)
        assert loaded.dtype == mapped.dtype
        assert loaded.tobytes("A") == mapped.tobytes("A")
        taken += 1
    assert taken > 10


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, ml_dtypes.bfloat16),
        np.zeros(2, ml_dtypes.float8_e5m2),
        np.array([None]),
        np.zeros(2, "U3"),
        np.zeros(2, "i4,f4"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_dtypes_npy_cannot_hold_are_refused(path, array):
    with pytest.raises(QuantizedTypeError, match="safetensors"):
        write_npy(path, array)
    assert not path.exists()


def test_array_likes_are_written_and_quantized_and_masked_arrays_refused(path):
    write_npy(path, [1.0, 2.0])
    assert np.load(path).tolist() == [1, 2]
    ones = np.ones(2)
    for array in (qn.quantize(ones, "int8"), np.ma.masked_array(ones, [0, 1])):
        with pytest.raises(QuantizedTypeError):
            write_npy(path, array)


def test_the_embedded_array_is_as_described():
    weight = attention_weight()
    assert weight.shape == (384, 384)
    assert weight.dtype == np.float32
    assert np.isfinite(weight).all()
    assert np.array_equal(weight, weight.astype(np.float16))
    assert 0.05 < weight.std() < 0.2
