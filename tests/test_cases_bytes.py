"""Reported faults of packing, files and bytes.

See test_cases.py for what they are.
"""

import inspect

import ml_dtypes
import numpy as np
import pytest

import qnumba as qn
from qnumba.errors import (
    DataError,
    SchemeError,
)
from qnumba.io.safetensors import SafetensorsFile, write_safetensors
from qnumba.scheme import PRESETS, Scheme
from qnumba.serialize import decode_scales
from support import Params, quantize_on

F32 = np.float32


def test_P01_nibble_order(backend):
    x = np.array([-8, 7, -1], F32)
    scheme = Scheme("Q4F", store="packed_u8")
    made = quantize_on(backend, x, scheme, Params(np.array(1, F32)))
    assert made.words.tobytes() == bytes([0x78, 0x0F])


def test_P03_sign_extension():
    record = bytes([0x8F]) + np.array(1, "<f4").tobytes()
    q = qn.QArray.from_record(record, Scheme("Q4F", store="packed_u8"), (2,))
    assert q.codes().tolist() == [-1, -8]


def test_P04_words_of_int4(backend):
    """Two's complement, as burn. Offset-binary words are another project's format."""
    x = np.array([-8, -1, 0, 1, 7, 2, 3, -2], F32)
    made = quantize_on(backend, x, Scheme("Q4F"), Params(np.array(1, F32)))
    assert made.words.tolist() == [0xE32710F8]
    assert made.words.tobytes() == bytes([0xF8, 0x10, 0x27, 0xE3])


@pytest.mark.xfail(raises=ImportError, strict=True, reason="feature: the block layouts of GGUF")
def test_P06_gguf_interleaves_halves():
    from qnumba.io import gguf

    data = gguf.encode(np.arange(-16, 16, dtype=F32), "Q4_0")
    assert data[:5] == bytes([0x00, 0x40, 0x80, 0x91, 0x91])
    assert (len(data), data[-1]) == (18, 0xF8)


def test_P07_subnormal_scales():
    assert decode_scales(bytes([0x01, 0x08]), "UE4M3").tolist() == [0.001953125, 0.015625]


def test_P09_the_global_scale_multiplies():
    """As modelopt's weight_scale_2, amax / (6 * 448); its inverse is compressed-tensors' form.

    Files of either are another matter than the number: a reader must name which it reads.
    """
    x = np.zeros((1, 16), F32)
    x[0, 0] = F32(2688 * 0.00028)
    q = qn.quantize(x, "nvfp4")
    assert abs(float(q.global_scale) - 0.00028) < 1e-9
    assert q.scales.tolist() == [[448]]
    one = np.zeros((1, 16), F32)
    one[0, 0] = F32(448) * q.global_scale
    assert qn.quantize(one, "nvfp4", params=q.params).codes()[0, 0] == 2  # 1.0
    assert q.dequantize()[0, 0] == F32(6) * (q.global_scale * F32(448))


def test_P10_scale_bytes_are_codes():
    record = bytes([127, 0, 0, 0]) + bytes([0x38])
    q = qn.QArray.from_record(record, "Q8S block=4:UE4M3", (4,))
    assert q.scales.tolist() == [1.0]
    assert q.dequantize()[0] == 127


@pytest.mark.parametrize("name", PRESETS)
def test_P12_truncated_and_extended(name):
    x = np.linspace(-1, 1, 128 * 2, dtype=F32).reshape(2, 128)
    q = qn.quantize(x, name)
    record, container = q.to_record(), q.to_bytes()
    for data in (record[:-1], record + b"\0", b""):
        with pytest.raises(ValueError, match=f"expected {len(record)} bytes.* got {len(data)}"):
            qn.QArray.from_record(data, name, x.shape)
    for data in (container[:-1], container + b"\0"):
        with pytest.raises(ValueError, match=f"expected {len(container)} bytes, got {len(data)}"):
            qn.QArray.from_bytes(data)


def test_P13_little_endian_everywhere():
    q = qn.quantize(np.array([0, 127], F32), "Q8S")
    assert q.scales == 1
    assert q.to_record()[-4:] == bytes([0x00, 0x00, 0x80, 0x3F])


@pytest.mark.xfail(raises=SchemeError, strict=True, reason="feature: one-bit codes of signs")
def test_P14_sign_bits():
    x = np.array([[1, -1, 1, 1, -1, -1, -1, 1, 1, -1]], F32)
    q = qn.quantize(x, "B1")
    assert q.words.tolist() == [[177, 128]]
    assert q.codes().tolist() == (x > 0).astype(int).tolist()


def test_P16_bytes_say_what_they_are():
    x = np.linspace(-1, 1, 64, dtype=np.float16).reshape(2, 32)
    q = qn.quantize(x, "Q4S block=16:F16 pack_axis=1", rounding="away")
    required = inspect.signature(qn.QArray.from_record).parameters
    assert required["scheme"].default is required["shape"].default is inspect.Parameter.empty
    back = qn.QArray.from_bytes(q.to_bytes())
    assert (back.scheme, back.shape, back.source_dtype) == (q.scheme, (2, 32), "float16")
    assert "away" in back.options
    assert qn.__version__.encode() in q.to_bytes()


def test_P17_shape_of_four_bit_tensors(tmp_path):
    path = tmp_path / "a.safetensors"
    codes = np.arange(16, dtype=np.uint8).reshape(2, 8)
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    write_safetensors(path, {"w": ("F4", (2, 8))}, [("w", packed)])
    data = path.read_bytes()
    assert b'"shape":[2,8]' in data.replace(b" ", b"")
    assert data.endswith(packed.tobytes())
    with SafetensorsFile(path) as file:
        assert file.info("w").shape == (2, 8)
    with pytest.raises(ValueError, match="F4"):
        write_safetensors(path, {"w": ("F4", (2, 7))}, [("w", packed)])


def test_P18_nan_survives_rounding(backend):
    """Adding to the bits of a NaN to round it would make -0.0 or infinity."""
    x = np.array([0x7FFFFFFF, 0x7F800001, 0xFFFFFFFF], np.uint32).view(F32)
    made = quantize_on(backend, x, Scheme("E4M3"), nonfinite="keep")
    assert made.codes.tolist() == [0x7F, 0x7F, 0xFF]
    q = qn.quantize(x, "E5M2", nonfinite="keep")
    for dtype in (np.float16, ml_dtypes.bfloat16, F32, np.float64):
        assert np.isnan(q.dequantize(dtype).astype(np.float64)).all()
    with pytest.raises(DataError, match="3 NaN"):
        qn.quantize(x, "Q8S")
    huge = qn.quantize(np.array([3.4e38], F32), "Q8S").dequantize(ml_dtypes.bfloat16)
    assert np.isinf(huge.astype(F32))
