"""What quantize gives: codes, parameters, reused memory, and numbers decoded again."""

import ml_dtypes
import numpy as np
import pytest

import qnumba as qn
from qnumba.errors import DataError, QuantizedTypeError, SchemeError
from qnumba.formats import VALUES
from qnumba.params import Params
from qnumba.scheme import PRESETS, Scheme
from strategies import DTYPES
from support import assert_same_bits

F32 = np.float32
ONE = Params(np.array(1, F32))


def test_what_an_array_is_cannot_be_changed():
    """Kernels write what the plan says into memory of the shape that is said."""
    q = qn.quantize(np.ones((2, 32), F32), "int4")
    for name, other in (("shape", (1,)), ("scheme", "int8"), ("source_dtype", ""), ("options", "")):
        with pytest.raises(AttributeError):
            setattr(q, name, other)
    assert (q.shape, q.source_dtype) == ((2, 32), "float32")


def test_equal_means_equal_as_a_whole():
    q = qn.quantize(np.ones(64, F32), "int4")
    assert q == qn.quantize(np.ones(64, F32), "int4")
    assert q != qn.quantize(np.zeros(64, F32), "int4")
    assert q != "int4"
    assert q not in [None, "int4"]
    for other in (1, 1.0, np.float32(1), np.ones(64, F32)):
        for compare in (lambda o: q == o, lambda o: o == q, lambda o: q != o, lambda o: o in q):
            with pytest.raises(QuantizedTypeError, match="Should be float, got quantized"):
                compare(other)


def test_codes_have_their_dtype():
    x = np.linspace(-1, 1, 32, dtype=F32)
    for value in VALUES:
        modes = {"uint": ["affine"], "float": ["symmetric"]}.get(
            VALUES[value].kind, ["symmetric", "affine"]
        )
        for mode in modes:
            for store in ("native", "packed_u32"):
                codes = qn.quantize(x, Scheme(value, mode=mode, store=store)).codes()
                assert codes.dtype == (np.int8 if value.startswith("Q") else np.uint8)
    table = tuple(float(i) for i in range(-8, 8))
    for value in ("Q4S", "Q4F", "U4"):
        for store in ("native", "packed_u32", "packed_u8"):
            scheme = Scheme(value, mode="lookup", table=table, store=store)
            codes = qn.quantize(x, scheme).codes()
            assert codes.dtype == np.uint8
            assert codes.max() == 15


def test_parameters_have_their_dtype():
    x = np.linspace(-1, 1, 32, dtype=np.float64).reshape(2, 16)
    for scheme in ("Q8S", "U8 affine", "Q8S block=4:F16", "nvfp4", "U4 affine block=4:BF16"):
        q, p = qn.quantize(x, scheme), qn.calibrate(x, scheme)
        assert q.scales.dtype == p.scales.dtype == F32
        assert q.params == p
        for points in (q.zero_points, p.zero_points):
            assert (points is None) == (q.scheme.mode != "affine")
            assert points is None or (points.dtype == np.int32 and points.shape == q.scales.shape)
        for unit in (q.global_scale, p.global_scale):
            assert (unit is None) == (not q.scheme.two_level)
            assert unit is None or unit.dtype == F32


def test_out_reuses_memory():
    x = np.linspace(-1, 1, 64, dtype=F32)
    q = qn.quantize(x, "int4")
    words = q.words.ctypes.data
    again = qn.quantize(-x, "int4", out=q)
    assert again is q
    assert q.words.ctypes.data == words
    assert q == qn.quantize(-x, "int4")


@pytest.mark.parametrize(
    "make",
    [
        lambda: qn.quantize(np.ones(64, F32), "int8"),
        lambda: qn.quantize(np.ones(32, F32), "int4"),
        lambda: qn.quantize(np.ones((1, 64), F32), "int4"),
        lambda: qn.QArray.from_bytes(qn.quantize(np.ones(64, F32), "int4").to_bytes()),
    ],
)
def test_out_that_does_not_fit(make):
    with pytest.raises(SchemeError) as caught:
        qn.quantize(np.ones(64, F32), "int4", out=make())
    assert caught.value.field == "out"


def test_out_of_another_kind():
    with pytest.raises(QuantizedTypeError, match="QArray"):
        qn.quantize(np.ones(64, F32), "int4", out=np.zeros(64))


def test_out_after_a_failure_is_not_half_filled():
    q = qn.quantize(np.ones(4, F32), "Q8S")
    with pytest.raises(DataError):
        qn.quantize(np.array([1, np.nan, 3, 4], F32), "Q8S", out=q)
    with pytest.raises(SchemeError, match="did not finish"):
        q.codes()
    assert "not filled" in repr(q)
    qn.quantize(np.ones(4, F32), "Q8S", out=q)
    assert q.codes().tolist() == [127] * 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", [*PRESETS, "Q4F block=3:BF16", "U2 affine block=5:F16"])
def test_decoding_rounds_once(dtype, scheme):
    rng = np.random.default_rng(4)
    x = rng.normal(0, 1, (7, 130)).astype(F32)
    q = qn.quantize(x, scheme)
    exact = q.dequantize(np.float64)
    assert exact.dtype == np.float64
    y = q.dequantize(DTYPES[dtype])
    assert y.dtype == DTYPES[dtype]
    if dtype == "float64":
        return
    in_float32 = exact.astype(F32)  # code * e is exact in float64, so this is code * e in float32
    assert_same_bits(y, in_float32.astype(DTYPES[dtype]), dtype)


def test_decoding_to_bfloat16_by_name():
    q = qn.quantize(np.ones(4, F32), "Q8S")
    assert q.dequantize("bfloat16").dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_decoding_to_the_other_byte_order(dtype):
    q = qn.quantize(np.linspace(-1, 1, 24, dtype=F32).reshape(4, 6), "Q8S block=3:F16")
    native = q.dequantize(dtype)
    other = native.dtype.newbyteorder()
    for found in (
        q.dequantize(other),
        np.asarray(q, other),
        q.dequantize(out=native.astype(other)),
    ):
        assert found.dtype == other
        assert (found.astype(native.dtype) == native).all()


@pytest.mark.parametrize("dtype", [np.int8, bool, complex, "U4", object, "nonsense", None, np])
def test_decoding_to_what_is_no_float(dtype):
    with pytest.raises(QuantizedTypeError, match="float32"):
        qn.quantize(np.ones(4, F32), "Q8S").dequantize(dtype)


def test_decoding_into():
    x = np.linspace(-1, 1, 24, dtype=F32).reshape(4, 6)
    q = qn.quantize(x, "Q8S block=3:F16")
    expected = q.dequantize()
    for make in (
        lambda: np.empty((4, 6), F32),
        lambda: np.empty((6, 4), F32).T,
        lambda: np.empty((4, 12), F32)[:, ::2],
        lambda: np.empty((4, 6), ">f4"),
    ):
        out = make()
        assert q.dequantize(out=out) is out
        assert (out == expected).all()
    wide = np.empty((4, 6))
    assert_same_bits(q.dequantize(out=wide), q.dequantize(np.float64), "float64")
    read_only = np.empty((4, 6), F32)
    read_only.flags.writeable = False
    for out in (np.empty((4, 5), F32), np.empty(24, F32), read_only):
        with pytest.raises(SchemeError) as caught:
            q.dequantize(out=out)
        assert caught.value.field == "out"


def test_asarray():
    q = qn.quantize(np.linspace(-1, 1, 8, dtype=F32), "Q8S")
    assert_same_bits(np.asarray(q), q.dequantize(), "asarray")
    assert_same_bits(np.array(q, np.float64), q.dequantize(np.float64), "float64")
    assert_same_bits(qn.dequantize(q), q.dequantize(), "dequantize")
    with pytest.raises(ValueError, match="copy"):
        np.asarray(q, copy=False)


def test_decoding_overflows_to_infinity_without_a_warning():
    q = qn.quantize(np.array([3e38], F32), "Q8S")
    assert q.dequantize(np.float16) == np.inf


def test_size_of_what_is_held():
    x = np.ones((64, 64), F32)
    for scheme, bits in (("int8", 8 + 32 / 4096), ("int4", 4.5), ("mxfp4", 4.25), ("nf4", 4.5)):
        q = qn.quantize(x, scheme)
        assert q.bits_per_value == bits
        assert q.nbytes == len(q.to_record()) == 4096 * bits / 8
    assert qn.quantize(x, "nvfp4").nbytes == 2048 + 256 + 4
