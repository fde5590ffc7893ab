"""What quantize takes: dtypes, shapes and memory layouts."""

import numpy as np
import pytest

import qnumba as qn
from qnumba.errors import DataError, QuantizedTypeError, SchemeError
from qnumba.inputs import nonfinite_error
from qnumba.params import Params
from qnumba.scheme import PRESETS, Scheme
from strategies import DTYPES, LAYOUTS
from support import assert_same_bits

F32 = np.float32
ONE = Params(np.array(1, F32))


class Refuses:
    """What cannot be made an array of."""

    def __array__(self, dtype=None, copy=None):
        raise KeyError("mine")


def test_an_error_of_the_callers_own_is_the_cause():
    with pytest.raises(QuantizedTypeError, match="Refuses does not convert.*mine") as caught:
        qn.quantize(Refuses(), "Q8S")
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("x", [None, "abc", ["a"], {"a": 1}], ids=str)
def test_what_was_given_is_said(x):
    with pytest.raises(QuantizedTypeError) as caught:
        qn.quantize(x, "Q8S")
    assert str(caught.value).startswith(repr(x))


def test_nonfinite_values_that_are_gone_when_they_are_looked_for():
    assert "held NaN or infinity" in str(nonfinite_error(np.ones(3), None))


@pytest.mark.parametrize("scheme", ["Q8S", "Q8S block=4", "int4", "nvfp4", "uint8"])
@pytest.mark.parametrize("dtype", [F32, np.float64])
def test_parameters_are_taken_when_they_are_given(scheme, dtype):
    x = np.linspace(-1, 1, 64, dtype=F32)
    known = qn.calibrate(x, scheme)
    points = None if known.zero_points is None else known.zero_points.copy()
    mine = qn.QParams(np.array(known.scales, dtype), known.global_scale, points)
    q = qn.quantize(x, scheme, params=mine)
    before = q.to_record()
    mine.scales[...] = 5
    if points is not None:
        points[...] = 0
    assert q.to_record() == before


@pytest.mark.parametrize("dtype", ["nope", "", 5, None, np.ones(3), bool, object], ids=str)
def test_dtypes_that_cannot_be_warmed_up(dtype):
    with pytest.raises(QuantizedTypeError, match="cannot be quantized"):
        qn.warmup("Q8S", dtype=dtype)


def test_dtypes_that_can_be_warmed_up():
    for dtype in ("bfloat16", ">f4", np.int8):
        assert qn.warmup("Q8S", dtype=dtype) >= 0


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint64"])
def test_integers(dtype):
    x = np.array([0, 1, 100], dtype)
    q = qn.quantize(x, "Q8S", params=qn.QParams(np.array(1, F32)))
    assert q.codes().tolist() == [0, 1, 100]
    assert q.source_dtype == dtype
    assert_same_bits(qn.calibrate(x, "Q8S").scales, qn.calibrate(x.astype(float), "Q8S").scales)


def test_integers_are_exact_to_2_to_the_53():
    x = np.array([2**53 - 1, 2**53, -(2**53)])
    params = qn.QParams(np.float64(2.0**46))
    assert qn.quantize(x, "Q8F", params=params).codes().tolist() == [127, 127, -128]
    for beyond in ([2**53 + 1], [-(2**53) - 1], [2**62, 0]):
        with pytest.raises(DataError, match=r"2\*\*53"):
            qn.quantize(np.array(beyond), "Q8S")
    with pytest.raises(DataError, match=r"2\*\*53"):
        qn.quantize(np.array([2**63], np.uint64), "Q8S")


def test_lists_and_numbers():
    assert qn.quantize([0.0, 1.0, -1.0], "Q8S").codes().tolist() == [0, 127, -127]
    assert qn.quantize(3.0, "Q8S").codes().tolist() == 127
    assert qn.quantize(np.float32(3), "Q8S").shape == ()


@pytest.mark.parametrize("scheme", [*PRESETS, "Q4S", "Q4S block=1:F16", "Q2S store=packed_u8"])
def test_no_axes(scheme):
    known = Scheme.parse(scheme)
    if known.block not in {None, (1,)}:
        with pytest.raises(SchemeError, match="extents"):
            qn.quantize(np.array(2.0, F32), known)
        return
    q = qn.quantize(np.array(2.0, F32), known)
    assert q.shape == ()
    assert q.codes().shape == ()
    assert q.scales.shape == ()
    assert q.dequantize().shape == ()
    assert abs(float(q.dequantize()) - 2) <= 2.0**-9
    assert qn.QArray.from_record(q.to_record(), known, ()) == q


@pytest.mark.parametrize("shape", [(0,), (0, 8), (8, 0), (2, 0, 3)])
@pytest.mark.parametrize("scheme", [*PRESETS, "Q4S block=8:F16", "Q8S block=2x8:UE4M3 tensor=F32"])
def test_empty(shape, scheme):
    known = Scheme.parse(scheme)
    if known.block is not None and len(known.block) > len(shape):
        return
    q = qn.quantize(np.zeros(shape, F32), known)
    assert q.codes().shape == shape
    assert q.dequantize().shape == shape
    blocks = int(np.prod(q.scales.shape)) if known.block else 1
    assert q.scales.size == blocks
    assert qn.QArray.from_record(q.to_record(), known, shape) == q
    assert qn.QArray.from_bytes(q.to_bytes()) == q


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_of_inputs(layout, dtype):
    if layout == "big-endian" and dtype == "bfloat16":
        return  # NumPy has no big-endian bfloat16
    rng = np.random.default_rng(2)
    x = rng.normal(0, 1, (6, 5, 8)).astype(DTYPES[dtype])
    view = LAYOUTS[layout](x)
    before = view.copy()
    for scheme in ("Q8S", "Q4S block=2x4:F16 pack_axis=1", "nvfp4", "uint8"):
        assert qn.quantize(view, scheme) == qn.quantize(x, scheme), scheme
        assert qn.calibrate(view, scheme) == qn.calibrate(x, scheme), scheme
    assert_same_bits(view, before, "the input")


def test_broadcast_and_memory_mapped_inputs(tmp_path):
    row = np.linspace(-1, 1, 32, dtype=F32)
    wide = np.broadcast_to(row, (4, 32))
    assert qn.quantize(wide, "Q8S block=8") == qn.quantize(wide.copy(), "Q8S block=8")
    np.save(tmp_path / "x.npy", wide)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert qn.quantize(mapped, "Q8S block=8") == qn.quantize(wide.copy(), "Q8S block=8")


def test_subclasses_of_arrays():
    class Mine(np.ndarray):
        pass

    x = np.linspace(-1, 1, 8, dtype=F32)
    assert qn.quantize(x.view(Mine), "Q8S") == qn.quantize(x, "Q8S")
