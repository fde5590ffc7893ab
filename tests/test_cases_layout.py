"""Reported faults of shapes, memory layouts and dtypes.

See test_cases.py for what they are.
"""

import re

import ml_dtypes
import numpy as np
import pytest

import qnumba as qn
from qnumba.errors import (
    DataError,
    QuantizedTypeError,
    SchemeError,
)
from qnumba.scheme import PRESETS, Scheme
from support import Params, quantize_on

F32 = np.float32
U8 = Scheme("U8", mode="affine")
Q8 = Scheme("Q8F", mode="affine")


def affine(scale, zero):
    return Params(np.array(scale, F32), None, np.array(zero, np.int32))


def public(params):
    return qn.QParams(*params)


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
