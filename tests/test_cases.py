"""Faults that real users of quantization libraries reported, each with its input and right answer.

The names are those of the collection; ``CASES`` lists it, and a test holds that each is here. What
other libraries call ``ignore``, ``saturate`` or ``zero`` for NaN is ``clip`` here. Options that
the numeric contract does not have are named where a case asks for one.
"""

import inspect
import os
import re
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest

import qnumba as qn
from qnumba import observers
from qnumba.errors import (
    DataError,
    DecodeError,
    QuantizationError,
    QuantizedTypeError,
    SchemeError,
)
from qnumba.formats import STORES, VALUES
from qnumba.io.safetensors import SafetensorsFile, write_safetensors
from qnumba.scheme import PRESETS, Scheme
from qnumba.serialize import decode_scales
from support import Params, assert_same_bits, quantize_on

F32 = np.float32
CASES = [
    "Z01",
    "Z02",
    "Z04",
    "Z05",
    "Z07",
    "Z08",
    "N01",
    "N02",
    "N03",
    "N05",
    "N06",
    "N09",
    "O01",
    "O04",
    "O05",
    "O07",
    "O08",
    "R01",
    "R02",
    "R04",
    "R06",
    "R07",
    "R10",
    "R12",
    "G01",
    "G02",
    "G04",
    "G06",
    "L01",
    "L02",
    "L04",
    "L06",
    "L07",
    "L09",
    "L10",
    "L12",
    "D02",
    "D04",
    "D05",
    "D07",
    "D08",
    "P01",
    "P03",
    "P04",
    "P06",
    "P07",
    "P09",
    "P10",
    "P12",
    "P13",
    "P14",
    "P16",
    "P17",
    "P18",
    "X01",
    "X02",
    "X03",
    "X05",
    "X06",
    "X07",
    "X08",
    "X10",
    "X12",
]
U8 = Scheme("U8", mode="affine")
Q8 = Scheme("Q8F", mode="affine")


def affine(scale, zero):
    return Params(np.array(scale, F32), None, np.array(zero, np.int32))


def public(params):
    return qn.QParams(*params)


def test_every_case_is_here():
    assert len(CASES) == len(set(CASES)) == 63
    named = {name.split("_")[1] for name in globals() if re.match(r"test_[A-Z]\d\d_", name)}
    named.add("X01")  # test_huge.py
    assert named == set(CASES)


# --- zero and tiny scales


def test_Z01_all_zeros(backend):
    made = quantize_on(backend, np.zeros(4, F32), Scheme("Q8S"))
    assert made.codes.tolist() == [0, 0, 0, 0]
    assert made.params.scales == 0  # the documented value
    assert_same_bits(qn.quantize(np.zeros(4, F32), "Q8S").dequantize(), np.zeros(4, F32), "zeros")


def test_Z02_one_block_of_zeros(backend):
    x = np.array([1, -2, 3, -4, 0, 0, 0, 0], F32)
    made = quantize_on(backend, x, Scheme("Q8S", block=4, block_scale="F32"))
    assert made.codes.tolist() == [32, -64, 95, -127, 0, 0, 0, 0]
    assert qn.quantize(x, "Q8S block=4:F32").dequantize()[4:].tolist() == [0, 0, 0, 0]


def test_Z04_a_constant_is_not_degenerate(backend):
    made = quantize_on(backend, np.full(3, 5, F32), Q8)
    assert made.params.scales == F32(5) / F32(255)
    assert made.params.zero_points == -128
    assert made.codes.tolist() == [127, 127, 127]
    assert qn.quantize(np.full(3, 5, F32), Q8).dequantize().tolist() == [5, 5, 5]


def test_Z05_a_scale_below_float16(backend):
    x = np.full(32, 1e-6, F32)
    made = quantize_on(backend, x, Scheme("Q8S", block=32, block_scale="F16"))
    assert made.params.scales.tolist() == [2.0**-24]
    assert made.codes.tolist() == [17] * 32
    assert qn.quantize(x, "Q8S block=32:F16").dequantize()[0] == F32(17 * 2.0**-24)


def test_Z07_the_stored_power_divides(backend):
    x = np.full(32, 1e-37, F32)
    made = quantize_on(backend, x, PRESETS["mxfp8"], scale_rounding="floor")
    assert made.params.scales.tolist() == [2.0**-127]
    assert made.codes.tolist() == [0x59] * 32
    q = qn.quantize(x, "mxfp8", scale_rounding="floor")
    assert q.to_record()[32:] == b"\x00"
    assert q.dequantize()[0] == F32(18 * 2.0**-127)


def test_Z08_the_ends_of_ue8m0():
    """Byte 255 is NaN, and a NaN scale is refused: it would turn a whole block into NaN."""
    decoded = decode_scales(bytes([0, 1, 127, 254]), "UE8M0")
    assert decoded.tolist() == [2.0**-127, 2.0**-126, 1, 2.0**127]
    with pytest.raises(DecodeError, match="nan"):
        decode_scales(b"\xff", "UE8M0")


# --- NaN and infinity


def test_N01_nan_to_integers(backend):
    x = np.array([np.nan, 1.0], F32)
    with pytest.raises(DataError, match="1 NaN of 2 values, the first at index 0"):
        qn.quantize(x, U8, params=public(affine(1, 0)))
    made = quantize_on(backend, x, U8, affine(1, 0), nonfinite="clip")
    assert made.codes.tolist() == [0, 1]


def test_N02_infinity(backend):
    x = np.array([np.inf, -np.inf], F32)
    made = quantize_on(backend, x, U8, affine(1, 133), nonfinite="clip")
    assert made.codes.tolist() == [255, 0]


def test_N03_nan_in_a_block(backend):
    x = np.array([1, 1, 1, np.nan], F32)
    with pytest.raises(DataError, match=r"index 3 \(block 0\)"):
        qn.quantize(x, "Q8S block=4:F32")
    made = quantize_on(backend, x, Scheme("Q8S", block=4, block_scale="F32"), nonfinite="clip")
    assert made.params.scales.tolist() == [F32(1) / F32(127)]
    assert made.codes.tolist() == [127, 127, 127, 0]


def test_N05_a_format_without_nan(backend):
    x = np.array([np.nan], F32)
    with pytest.raises(DataError, match="index 0"):
        qn.quantize(x, "E2M1")
    with pytest.raises(SchemeError, match="E2M1 has no code for NaN"):
        qn.quantize(x, "E2M1", nonfinite="keep")
    for dtype in (F32, np.float64, np.float16, ml_dtypes.bfloat16):
        made = quantize_on(backend, x.astype(dtype), Scheme("E2M1"), nonfinite="clip")
        assert made.codes.tolist() == [0]


def test_N06_float8_saturates(backend):
    """An option that overflows to NaN instead is not in the contract."""
    x = np.array([448, 464, 465, 1000, -1000], F32)
    made = quantize_on(backend, x, Scheme("E4M3"), Params(np.array(1, F32)))
    assert made.codes.tolist() == [0x7E, 0x7E, 0x7E, 0x7E, 0xFE]
    decoded = qn.quantize(x, "E4M3", params=qn.QParams(np.array(1, F32))).dequantize()
    assert decoded.tolist() == [448, 448, 448, 448, -448]


def test_N09_nan_never_becomes_data():
    """It raises; the formats that have NaN give it back."""
    x = np.array([1.0, np.nan, 2.5, 100.25])
    for name in PRESETS:
        scheme = PRESETS[name].replace(block=None, block_scale=None, tensor_scale=None)
        with pytest.raises(DataError, match="index 1"):
            qn.quantize(x, scheme)
    for value in ("E4M3", "E5M2"):
        decoded = qn.quantize(x, value, nonfinite="keep").dequantize()
        assert np.isnan(decoded).tolist() == [False, True, False, False]


# --- overflow


def test_O01_beyond_int32(backend):
    """Ten, so that the tail of a vector loop takes part."""
    made = quantize_on(backend, np.full(10, 2.0**32, F32), U8, affine(0.5, 1))
    assert made.codes.tolist() == [255] * 10


@pytest.mark.xfail(
    raises=TypeError, strict=True, reason="feature: affine codes with a given offset, truncated"
)
def test_O04_offsets_of_each_column():
    rows = np.array([[1, 20, -3], [4, 5, -60]], F32)
    start, step = rows.min(axis=0, keepdims=True), np.ptp(rows, axis=0, keepdims=True) / 255
    params = qn.QParams(step, None, np.full(step.shape, -128, np.int32), offsets=start)
    scheme = Scheme("Q8F", mode="affine", block=(2, 1))
    q = qn.quantize(np.array([[-1, 15, 1]], F32), scheme, params=params, rounding="floor")
    assert q.codes().tolist() == [[-128, 42, 127]]


def test_O04_columns_beyond_their_range_are_clipped(backend):
    """What the case is about: outside the calibrated range codes saturate, they never wrap."""
    rows = np.array([[1, 20, -3], [4, 5, -60]], F32)
    scheme = Scheme("Q8F", mode="affine", block=(2, 1), block_scale="F32")
    params = quantize_on(backend, rows, scheme).params
    made = quantize_on(backend, np.array([[-1, 25, 1]], F32), scheme, params)
    assert made.codes.tolist() == [[-128, 127, 127]]


def test_O05_the_zero_point_is_added_in_a_wide_type(backend):
    assert quantize_on(backend, np.array([100.0], F32), Q8, affine(1, 100)).codes.tolist() == [127]


def test_O07_saturate_not_wrap(backend):
    x = np.array([30.0, -1.0])
    assert quantize_on(backend, x, U8, affine(0.1, 0)).codes.tolist() == [255, 0]


def test_O08_another_arrays_parameters():
    """int16 and float offsets are not in the contract: the same with 8 bits and a zero point."""
    params = qn.calibrate(np.array([0.15, 7.0]), U8)
    x = np.array([0.15, 7.0, 47.0])
    q = qn.quantize(x, U8, params=params)
    assert q.codes().tolist()[2] == 255
    assert 7 <= q.dequantize()[2] < 7.1
    assert qn.report(x, q).clipped == 1


# --- rounding


def test_R01_ties_to_even(backend):
    x = np.array([0.25, 0.75, 1.25, 1.75, -0.25, -0.75], F32)
    assert quantize_on(backend, x, Q8, affine(0.5, 0)).codes.tolist() == [0, 2, 2, 4, 0, -2]


def test_R02_float16_rounds_as_float32(backend):
    x = np.array([0.050018310546875, -0.050018310546875], np.float16)
    scheme = Scheme("Q8F", mode="affine", tensor_scale="F16")
    for dtype in (np.float16, F32, np.float64):
        made = quantize_on(backend, x.astype(dtype), scheme, affine(0.0999755859375, 0))
        assert made.codes.tolist() == [1, -1]


def test_R04_a_division_is_a_division(backend):
    x = np.array([1.55, 4.95], F32)
    made = quantize_on(backend, x, Scheme("Q8S"), Params(np.array(0.1, F32)))
    assert made.codes.tolist() == [15, 49]


def test_R06_float64_is_rounded_once(backend):
    x = np.array([17 + 1e-9])
    made = quantize_on(backend, x, Scheme("E4M3"), Params(np.array(1, F32)))
    assert made.codes.tolist() == [0x59]
    assert qn.quantize(x, "E4M3", params=qn.QParams(np.array(1, F32))).dequantize() == 18


def test_R07_float8_ties(backend):
    x = np.array([4.25, 4.75, 17.0], F32)
    made = quantize_on(backend, x, Scheme("E4M3"), Params(np.array(1, F32)))
    expected = np.array([4.0, 5.0, 16.0], F32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert made.codes.tolist() == expected.tolist()


def test_R10_ties_of_powers(backend):
    x = np.array([3.0, 0.75], F32)
    scheme = Scheme("Q2S", block=1, block_scale="UE8M0", store="native")
    made = quantize_on(backend, x, scheme, scale_rounding="nearest")
    assert made.params.scales.tolist() == [2.0, 0.5]
    q = qn.quantize(x, scheme, scale_rounding="nearest")
    assert q.to_record()[2:] == bytes([128, 126])


def test_R12_the_zero_point_is_computed_in_float32(backend):
    x = np.array([-1.0, 0.0, 1.0], F32)
    assert quantize_on(backend, x, U8).params.zero_points == 127


# --- ranges


def test_G01_full_and_restricted_range(backend):
    x = np.array([-129, -128, -127, 127, 128], F32)
    one = Params(np.array(1, F32))
    made = quantize_on(backend, x, Scheme("Q8F"), one)
    assert made.codes.tolist() == [-128, -128, -127, 127, 127]
    made = quantize_on(backend, x, Scheme("Q8S"), one)
    assert made.codes.tolist() == [-127, -127, -127, 127, 127]


def test_G02_the_range_includes_zero(backend):
    """An explicit float offset is not in the contract."""
    x = np.array([10.0, 12.5, 15.0])
    made = quantize_on(backend, x, Q8)
    assert abs(float(made.params.scales) - 15 / 255) < 1e-8
    assert made.params.zero_points == -128
    assert made.codes.tolist() == [42, 84, 127]
    error = np.abs(qn.quantize(x, Q8).dequantize(np.float64) - x).max()
    assert round(error, 4) == 0.0294


def test_G04_unsigned_symmetric(backend):
    """U8 needs a zero point; 128 in the middle of [1, 255] is given, not guessed."""
    with pytest.raises(SchemeError, match="affine"):
        Scheme("U8")
    x = np.array([-1.0, 0.0, 1.0], F32)
    made = quantize_on(backend, x, U8, affine(F32(1) / F32(127), 128))
    assert made.codes.tolist() == [1, 128, 255]


@pytest.mark.xfail(raises=ImportError, strict=True, reason="feature: the block layouts of GGUF")
def test_G06_gguf_q4_0_clips_the_other_side():
    from qnumba.io import gguf

    x = np.array([-8, 7, 8, 1] + [0] * 28, F32)
    data = gguf.encode(x, "Q4_0")
    assert gguf.decode(data, "Q4_0", x.shape)[:4].tolist() == [-8, 7, 7, 1]


# --- layouts and shapes


@pytest.mark.parametrize("name", PRESETS)
def test_L01_fortran_order(name):
    x = np.asfortranarray(np.arange(6, dtype=F32).reshape(2, 3))
    scheme = PRESETS[name]
    q = qn.quantize(x, scheme)
    assert q.to_bytes() == qn.quantize(np.ascontiguousarray(x), scheme).to_bytes()
    error = np.abs(q.dequantize() - x)
    assert error.argmax() == np.abs(q.dequantize() - np.ascontiguousarray(x)).argmax()


@pytest.mark.parametrize("name", PRESETS)
def test_L02_strided_slice(name):
    x = np.arange(64 * 128, dtype=F32).reshape(64, 128)[::2]
    for scheme in (PRESETS[name], Scheme("Q8S", block=64, block_scale="F32")):
        assert qn.quantize(x, scheme) == qn.quantize(x.copy(), scheme)


def test_L04_negative_stride():
    x = np.arange(4, dtype=F32)[::-1]
    q = qn.quantize(x, "Q8S", params=qn.QParams(np.array(1, F32)))
    assert q.codes().tolist() == [3, 2, 1, 0]


def test_L06_empty():
    x = np.zeros((0, 8), F32)
    per_tensor, per_block = qn.quantize(x, "Q8S"), qn.quantize(x, "Q8S block=8:F32")
    assert per_tensor.codes().shape == per_block.codes().shape == (0, 8)
    assert (per_tensor.scales.shape, per_block.scales.shape) == ((), (0, 1))
    assert per_tensor.scales == 0  # the documented value
    for q in (per_tensor, per_block):
        assert qn.QArray.from_record(q.to_record(), q.scheme, q.shape) == q
        assert qn.QArray.from_bytes(q.to_bytes()) == q
        assert q.dequantize().shape == (0, 8)


def test_L07_a_ragged_last_block(backend):
    x = np.append(np.ones(32), -3.0).astype(F32)
    made = quantize_on(backend, x, Scheme("Q8S", block=32, block_scale="F32"))
    assert made.params.scales.tolist() == [F32(1) / F32(127), F32(3) / F32(127)]
    assert made.codes.tolist() == [127] * 32 + [-127]
    assert qn.quantize(x, "Q8S block=32:F32").dequantize().shape == (33,)


def test_L09_a_block_is_a_rectangle(backend):
    x = np.array([[1, 2, 30, 40], [3, 4, 10, 20]], F32)
    made = quantize_on(backend, x, Scheme("Q8S", block=(2, 2), block_scale="F32"))
    assert made.params.scales.tolist() == [[F32(4) / F32(127), F32(40) / F32(127)]]


def test_L10_blocks_of_one(backend):
    made = quantize_on(backend, np.array([0.5, -2.0], F32), Scheme("Q8S", block=1))
    assert made.params.scales.tolist() == [F32(0.5) / F32(127), F32(2) / F32(127)]
    assert made.codes.tolist() == [127, -127]


@pytest.mark.parametrize(
    ("block", "nearest"), [(2**64, 2**31 - 1), (0, 1), (-1, 1), (2.5, 2), (True, None)]
)
def test_L12_absurd_blocks(block, nearest):
    with pytest.raises(SchemeError, match=re.escape(repr(block))) as caught:
        qn.quantize(np.ones((1, 1, 1), F32), Scheme("Q8S", block=block))
    assert caught.value.field == "block"
    assert isinstance(caught.value.nearest, Scheme)
    if nearest is not None:
        assert caught.value.nearest.block == (nearest,)


# --- dtypes


def test_D02_read_only_input(tmp_path):
    x = np.ones(3, F32)
    x.flags.writeable = False
    np.save(tmp_path / "x.npy", x)
    for view in (x, np.load(tmp_path / "x.npy", mmap_mode="r"), np.broadcast_to(F32(1), 3)):
        assert qn.quantize(view, "Q8S").codes().tolist() == [127] * 3
    assert x.tolist() == [1, 1, 1]


def test_D04_float16_input(backend):
    assert quantize_on(backend, np.ones(3, np.float16), Scheme("Q8S")).codes.tolist() == [127] * 3


def test_D05_bfloat16_input(backend):
    x = np.ones(3, ml_dtypes.bfloat16)
    assert quantize_on(backend, x, Scheme("Q8S")).codes.tolist() == [127] * 3
    assert qn.quantize(x, "nvfp4").dequantize(ml_dtypes.bfloat16).tolist() == [1, 1, 1]
    for kind in (ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn):
        with pytest.raises(QuantizedTypeError, match="bfloat16"):
            qn.quantize(np.ones(3, kind), "Q8S")


def test_D07_dtypes_are_never_confused(backend):
    x = np.ones(4, np.float16)
    assert quantize_on(backend, x, Scheme("Q8S")).codes.tolist() == [127] * 4
    for bad in (np.ones(4, complex), np.array([None] * 4), np.array(["a"]), np.ones(4, "M8[s]")):
        with pytest.raises(TypeError, match="float16, bfloat16"):
            qn.quantize(bad, "Q8S")


def test_D08_integers_are_exact():
    x = np.array([16777217, 1])
    scale = qn.calibrate(x, "Q2S").scales
    assert scale == np.nextafter(F32(16777216), F32(np.inf))  # 16777217 is no float32: upwards
    assert qn.quantize(x, Q8, params=public(affine(2.0**17, 0))).codes().tolist() == [127, 0]
    half = public(affine(2, 0))  # 16777217 / 2 is no tie, 16777216 / 2 would be even
    assert qn.quantize(x - 16777214, Q8, params=half).codes().tolist()[0] == 2
    with pytest.raises(DataError, match=r"2\*\*53"):
        qn.quantize(np.array([2**53 + 1]), "Q8S")
    with pytest.raises(QuantizedTypeError, match="bool"):
        qn.quantize(np.array([True]), "Q8S")


# --- packing and bytes


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


# --- running


def test_X02_indices_on_the_gpu_are_64_bits_wide():
    """blockIdx.x * blockDim.x overflows 32 bits; seen in the PTX, before any GPU runs it."""
    pytest.importorskip("numba_cuda", reason="needs the cuda extra")
    from numba import cuda, int64, void

    from qnumba.gpu.places import thread_index

    def kernel(out):
        out[0] = thread_index()

    ptx, _ = cuda.compile_ptx(kernel, void(int64[::1]), cc=(9, 0))
    assert re.search(r"mul\.wide\.[us]32|mul\.lo\.s64|mad\.wide|mad\.lo\.s64", ptx)
    assert not re.search(r"(mul|mad)\.lo\.s32", ptx)


def run(code, **environment):
    """Run Python code in a process of its own and return what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    kept = os.environ | environment
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("layer", ["workqueue", "omp"])
def test_X03_python_threads(layer):
    """workqueue aborts the process when two threads run parallel kernels at once."""
    code = """
        import threading
        import numpy as np
        import qnumba as qn
        x = np.linspace(-1, 1, 2**19, dtype=np.float32)
        expected = qn.quantize(x, "Q8S").to_record()
        same = []
        def work():
            for _ in range(20):
                q = qn.quantize(x, "Q8S")
                same.append(q.to_record() == expected and q.dequantize().size == x.size)
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(same) == 80 and all(same)
    """
    run(code, NUMBA_THREADING_LAYER=layer)


def test_X05_no_folder_for_the_cache():
    """Importing never touches the cache; the first kernel warns once and works."""
    code = """
        import warnings
        import numpy as np
        from numba.core import caching
        caching.CacheImpl._locator_classes = []  # what Numba is left with where nothing is writable
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import qnumba as qn
            assert not caught
            assert qn.quantize(np.ones(3, np.float32), "Q8S").codes().tolist() == [127] * 3
            assert qn.quantize(np.ones(3, np.float32), "nvfp4").codes().tolist() == [7] * 3
        ours = [w for w in caught if "compiled kernels" in str(w.message)]
        print(len(ours))
    """
    done = run(code)
    assert done.stdout.split() == ["1"]


def test_X06_nan_is_seen(backend):
    """Fast arithmetic would fold isnan to False."""
    x = np.array([1, np.nan, 3], F32)
    for size in (3, 16, 35, 4096):
        made = quantize_on(backend, np.resize(x, size), Scheme("Q8S"))
        assert made.nonfinite
    last = np.ones(2**18 + 5, F32)
    last[-1] = np.nan
    assert quantize_on(backend, last, Scheme("Q8S")).nonfinite


@pytest.mark.parametrize("name", PRESETS)
def test_X07_division_by_a_zero_scale(backend, name):
    scheme = PRESETS[name]
    x = np.zeros((2, 64), F32)
    x[1, 3] = 1e-45
    made = quantize_on(backend, x, scheme)
    assert np.isfinite(made.params.scales).all()
    zero = 0 if made.params.zero_points is None else made.params.zero_points[..., None]
    if scheme.mode != "lookup":
        assert (made.codes[0] == np.ravel(zero)[0]).all()
    assert not qn.quantize(x, name).dequantize()[0].any()


def test_X08_the_producers_stream():
    """What the CUDA array interface says of the stream is what the kernels run on."""
    pytest.importorskip("numba_cuda", reason="needs the cuda extra")
    from qnumba.gpu import arrays

    class Produced:
        __cuda_array_interface__ = {
            "shape": (0,),
            "typestr": "<f4",
            "data": (0, False),
            "version": 3,
            "stream": 12345,
        }

    try:
        view = arrays.view(Produced())
    except Exception as error:  # noqa: BLE001 - no driver to ask which device is current
        pytest.skip(f"needs an NVIDIA driver: {error}")
    assert view.stream == 12345


def test_X10_streams_that_start_with_zeros():
    chunks = [np.zeros(8), np.zeros(8), np.arange(8.0)]
    for kind in (observers.MinMax, observers.AbsMax, observers.AbsMean):
        observer = kind(U8 if kind is observers.MinMax else "Q8S")
        with pytest.raises(QuantizationError):
            observer.params()
        for chunk in chunks:
            observer.update(chunk)
        method = "absmean" if kind is observers.AbsMean else "minmax"
        expected = qn.calibrate(np.concatenate(chunks), observer.scheme, method=method)
        assert observer.params() == expected


@pytest.mark.parametrize("value", VALUES)
def test_X12_reference_and_cpu_are_byte_identical(reference, cpu, value):
    """Every value type with every store, scale dtype and level; ties, subnormals and NaN inside."""
    rng = np.random.default_rng(12)
    x = (
        np.concatenate(
            [
                rng.normal(0, 1, 64),
                rng.integers(-20, 20, 64) / 2,
                rng.integers(-999, 999, 64) * 2.0**-149,
                [np.nan, np.inf, -np.inf, 0.0, -0.0] + [1e38] * 59,
            ]
        )
        .astype(F32)
        .reshape(8, 32)
    )
    mode = "affine" if value.startswith("U") else "symmetric"
    levels = [{"tensor_scale": scale} for scale in ("F32", "F16", "BF16", "UE8M0", "UE4M3")]
    for block in (16, (4, 8), (8, 1)):
        levels += [
            {"block": block, "block_scale": scale}
            for scale in ("F32", "F16", "BF16", "UE8M0", "UE4M3")
        ]
        if mode == "symmetric":
            levels.append({"block": block, "block_scale": "UE4M3", "tensor_scale": "F32"})
    compared = 0
    for store, row in STORES.items():
        for level in levels if value in row.values else []:
            scheme = Scheme(value, mode=mode, store=store, **level)
            made = quantize_on(cpu, x, scheme, nonfinite="clip")
            expected = quantize_on(reference, x, scheme, nonfinite="clip")
            assert_same_bits(made.words, expected.words, str(scheme))
            assert_same_bits(made.params.scales, expected.params.scales, str(scheme))
            compared += 1
    assert compared >= 2 * len(levels)
