"""Quantized arrays in safetensors files."""

import json

import numpy as np
import pytest
from safetensors import safe_open

import qnumba as qn
from qnumba.errors import DataError, DecodeError, QuantizedTypeError
from qnumba.io.checkpoint import (
    KEY,
    pack_qarray,
    read_entries,
    unpack_qarray,
)
from qnumba.io.safetensors import SafetensorsFile, save_safetensors, write_safetensors

SCHEMES = [
    *qn.PRESETS,
    "E2M1",
    "E5M2 block=4:BF16",
    "Q4F block=2x8:F16 store=packed_u8",
    "U2 affine block=32:F16",
    "Q8F affine",
    "Q8S block=16:F16 tensor=F32",
    "Q2S store=packed_u32 pack_axis=1",
    "E2M1 store=native block=7:UE8M0",
]
SHAPES = [(6, 40), (3, 5, 17), (0, 32), (1, 1)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.safetensors"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_packed_is_unpacked_bit_for_bit(path, scheme, shape):
    x = np.random.default_rng(1).standard_normal(shape)
    q = qn.quantize(x, scheme)
    save_safetensors(path, {"w": q})
    with SafetensorsFile(path) as file:
        back = unpack_qarray(file, "w")
    assert back == q
    assert (back.source_dtype, back.options) == ("float64", q.options)
    assert not back.words.flags.writeable


def test_per_tensor_arrays_without_axes(path):
    q = qn.quantize(np.float32(3.5), "int8")
    save_safetensors(path, {"w": q})
    with SafetensorsFile(path) as file:
        assert unpack_qarray(file, "w") == q


def test_nvfp4_has_the_names_and_dtypes_other_tools_look_for(path):
    q = qn.quantize(np.ones((4, 32), np.float32), "nvfp4")
    save_safetensors(path, {"layer.weight": q})
    with safe_open(path, "np") as file:
        found = {}
        for name in file.keys():  # noqa: SIM118 - this object is no mapping
            part = file.get_slice(name)
            found[name] = (part.get_dtype(), part.get_shape())
    assert found == {
        "layer.weight": ("U8", [4, 16]),
        "layer.weight_scale": ("F8_E4M3", [4, 2]),
        "layer.weight_scale_2": ("F32", []),
    }


def test_fp8_codes_are_fp8_tensors(path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(2, 32)
    q = qn.quantize(x, "mxfp8")
    save_safetensors(path, {"w": q})
    with SafetensorsFile(path) as file:
        codes, scales = file.view("w"), file.view("w_scale")
    assert codes.dtype == ml_dtypes.float8_e4m3fn
    assert np.array_equal(codes.astype(np.float32) * scales.astype(np.float32), q.dequantize())


def test_a_file_without_quantized_arrays_has_no_entries(path):
    write_safetensors(path, {"a": ("U8", (1,))}, [("a", np.ones(1, np.uint8))])
    with SafetensorsFile(path) as file:
        assert read_entries(file) == {}
        with pytest.raises(KeyError, match="no quantized array 'a'"):
            unpack_qarray(file, "a")


def test_quantized_and_plain_arrays_share_a_file(path):
    x = np.ones((2, 32), np.float32)
    q = qn.quantize(x, "nvfp4")
    save_safetensors(path, {"v": x, "w": q}, {"k": "told"})
    with SafetensorsFile(path) as file:
        assert list(read_entries(file)) == ["w"]
        assert unpack_qarray(file, "w") == q
        assert np.array_equal(file["v"], x)
        assert file.metadata["k"] == "told"


ONE = np.ones(2, np.float32)
NOT_WRITTEN = {
    "no mapping": (None, QuantizedTypeError, "NoneType"),
    "list": ([ONE], QuantizedTypeError, "list"),
    "masked": ({"a": np.ma.masked_array(ONE, [0, 1])}, QuantizedTypeError, "filled"),
    "objects": ({"a": None}, QuantizedTypeError, "None is no array"),
    "a name of a part": ({"w": qn.quantize(ONE, "int8"), "w_scale": ONE}, DataError, "'w_scale'"),
    "parts of one name": (
        {name: qn.quantize(ONE, "int8") for name in ("w", "w_scale")},
        DataError,
        "'w_scale'",
    ),
    "a number as the name": ({5: qn.quantize(ONE, "int8")}, DataError, "str"),
}


@pytest.mark.parametrize("case", NOT_WRITTEN)
def test_what_would_be_altered_is_not_written(path, case):
    arrays, error, message = NOT_WRITTEN[case]
    with pytest.raises(error, match=message):
        save_safetensors(path, arrays)
    assert not path.exists()


def test_metadata_cannot_stand_where_ours_do(path):
    with pytest.raises(DataError, match="'qnumba'"):
        save_safetensors(path, {"w": qn.quantize(ONE, "int8")}, {KEY: "{}"})


def test_a_quantized_array_is_no_tensor(path):
    q = qn.quantize(ONE, "int8")
    with pytest.raises(QuantizedTypeError, match="dequantize"):
        write_safetensors(path, {"w": ("F32", (2,))}, [("w", q)])


GOOD = {"scheme": "Q8S", "shape": [4], "dtype": "float32", "options": ""}
HOSTILE = {
    "not JSON": "{",
    "not an object": "[]",
    "a number": "3",
    "no tensors": '{"version": 1}',
    "later version": '{"version": 2, "tensors": {}}',
    "deep": "[" * 100_000,
    "tensors is a list": '{"version": 1, "tensors": []}',
    "entry is text": {"w": "Q8S"},
    "no scheme": {"w": {"shape": [4], "dtype": "float32"}},
    "scheme is a number": {"w": GOOD | {"scheme": 8}},
    "no such scheme": {"w": GOOD | {"scheme": "Q9S"}},
    "negative shape": {"w": GOOD | {"shape": [-4]}},
    "boolean shape": {"w": GOOD | {"shape": [True]}},
    "shape is a number": {"w": GOOD | {"shape": 4}},
    "other shape": {"w": GOOD | {"shape": [5]}},
    "huge shape": {"w": GOOD | {"shape": [2**70]}},
    "block too long": {"w": GOOD | {"scheme": "Q8S block=2x2"}},
    "dtype no array has": {"w": GOOD | {"dtype": "complex64"}},
    "scheme of other codes": {"w": GOOD | {"scheme": "U8"}},
    "scheme with more tensors": {"w": GOOD | {"scheme": "Q8S affine"}},
    "tensor not there": {"v": GOOD},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_metadata_that_lie_are_refused(path, case):
    made = HOSTILE[case]
    text = made if isinstance(made, str) else json.dumps({"version": 1, "tensors": made})
    tensors = pack_qarray("w", qn.quantize(np.arange(4, dtype=np.float32), "Q8S"))
    layout = {"w": ("I8", (4,)), "w_scale": ("F32", ())}
    write_safetensors(path, layout, tensors.items(), {KEY: text})
    with SafetensorsFile(path) as file, pytest.raises(DecodeError, match=r"a\.safetensors"):
        [unpack_qarray(file, name) for name in read_entries(file)]


def test_scales_that_are_no_scales_are_refused(path):
    tensors = {"w": np.zeros(4, np.int8), "w_scale": np.array(-1, np.float32)}
    layout = {"w": ("I8", (4,)), "w_scale": ("F32", ())}
    text = json.dumps({"version": 1, "tensors": {"w": GOOD}})
    write_safetensors(path, layout, tensors.items(), {KEY: text})
    with SafetensorsFile(path) as file, pytest.raises(DecodeError, match="scale"):
        unpack_qarray(file, "w")
