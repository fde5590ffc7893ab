"""Other people's implementations: where the contract is theirs, they and qnumba agree.

ONNX Runtime quantizes to integers, ml_dtypes and gfloat know the small floats of OCP.
"""

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest

import oracle
import qnumba as qn
from onnx_model import run_node
from qnumba.scheme import Scheme
from support import Params, assert_same_bits, calibrate_on, dequantize_on, quantize_on

F32 = np.float32
MAKERS = {
    "normal": lambda rng, size: rng.normal(0, 1, size),
    "wide": lambda rng, size: rng.normal(0, 1, size) * 10.0 ** rng.integers(-9, 9, size),
    "ties": lambda rng, size: rng.integers(-600, 600, size) / 4,
    "positive": lambda rng, size: rng.uniform(3, 900, size),
    "tiny": lambda rng, size: rng.normal(0, 1, size) * 1e-41,
    "zeros": lambda rng, size: np.zeros(size),
}


@pytest.fixture(params=MAKERS)
def numbers(request):
    """A thousand numbers, float32; odd in number, so that vector kernels have a tail."""
    return MAKERS[request.param](np.random.default_rng(5), 1003).astype(F32)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("scale", [1.0, 0.1, 0.25, 1 / 127, 3e-5, 1e7])
def test_onnx_quantize_linear(backend, numbers, kind, scale):
    zero = {"int8": -3, "uint8": 133}[kind]
    scheme = Scheme({"int8": "Q8F", "uint8": "U8"}[kind], mode="affine")
    params = Params(np.array(scale, F32), None, np.array(zero, np.int32))
    (expected,) = run_node("QuantizeLinear", [numbers, params.scales, np.array(zero, kind)], [kind])
    made = quantize_on(backend, numbers, scheme, params)
    assert_same_bits(made.codes, expected, kind, given=numbers)
    (decoded,) = run_node(
        "DequantizeLinear", [expected, params.scales, np.array(zero, kind)], ["float32"]
    )
    actual = dequantize_on(backend, made.words, scheme, numbers.shape, params)
    assert_same_bits(actual, decoded, "decoded", given=expected)


def test_onnx_symmetric_is_the_full_range(backend, numbers):
    """Without a zero point ONNX's int8 is Q8F: -128 is used."""
    scale = np.array(0.1, F32)
    (expected,) = run_node("QuantizeLinear", [numbers, scale, np.array(0, np.int8)], ["int8"])
    made = quantize_on(backend, numbers, Scheme("Q8F"), Params(scale))
    assert_same_bits(made.codes, expected, "int8", given=numbers)


@pytest.mark.parametrize("axis", [0, 1])
def test_onnx_per_axis(backend, axis):
    """One scale per row or per column is a block as long as the other axis."""
    rng = np.random.default_rng(6)
    x = rng.normal(0, 3, (24, 33)).astype(F32)
    scales = rng.uniform(0.01, 0.1, x.shape[axis]).astype(F32)
    zeros = rng.integers(-128, 128, x.shape[axis]).astype(np.int8)
    (expected,) = run_node("QuantizeLinear", [x, scales, zeros], ["int8"], axis=axis)
    block, grid = ((33,), (24, 1)) if axis == 0 else ((24, 1), (1, 33))
    scheme = Scheme("Q8F", mode="affine", block=block, block_scale="F32")
    params = Params(scales.reshape(grid), None, zeros.astype(np.int32).reshape(grid))
    made = quantize_on(backend, x, scheme, params)
    assert_same_bits(made.codes, expected, f"axis {axis}", given=x)


@pytest.mark.parametrize("block", [16, 32])
def test_onnx_blocks(backend, block):
    rng = np.random.default_rng(7)
    x = rng.normal(0, 3, (12, 128)).astype(F32)
    scheme = Scheme("U8", mode="affine", block=block, block_scale="F32")
    made = quantize_on(backend, x, scheme)
    scales, zeros = made.params.scales, made.params.zero_points.astype(np.uint8)
    (expected,) = run_node(
        "QuantizeLinear", [x, scales, zeros], ["uint8"], axis=1, block_size=block
    )
    assert_same_bits(made.codes, expected, f"block {block}", given=x)


def test_onnx_dynamic_quantize_linear(backend, numbers):
    """The rule of calibration for affine schemes: range with 0, scale, zero point, codes."""
    codes, scale, zero = run_node("DynamicQuantizeLinear", [numbers], ["uint8", "float32", "uint8"])
    made = quantize_on(backend, numbers, Scheme("U8", mode="affine"))
    assert_same_bits(made.params.scales, scale, "scale")
    assert made.params.zero_points == zero
    assert_same_bits(made.codes, codes, "codes", given=numbers)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_onnx_float16(backend, dtype):
    """float16 input and scale: ONNX computes x / scale in float32, as here."""
    rng = np.random.default_rng(8)
    x = rng.normal(0, 1, 4096).astype(dtype)
    scale = np.array(0.0999755859375, dtype)
    (expected,) = run_node("QuantizeLinear", [x, scale, np.array(0, np.int8)], ["int8"])
    params = Params(scale.astype(F32), None, np.array(0, np.int32))
    made = quantize_on(backend, x, Scheme("Q8F", mode="affine", tensor_scale="F16"), params)
    assert_same_bits(made.codes, expected, dtype, given=x)


def test_onnx_float8(backend, numbers):
    """Saturating float8, as ONNX has it by default. (Its Python door gives E4M3 only.)"""
    kind = np.dtype(ml_dtypes.float8_e4m3fn)
    scale = np.array(0.1, F32)
    (expected,) = run_node("QuantizeLinear", [numbers, scale, np.zeros((), kind)], [kind.name])
    made = quantize_on(backend, numbers, Scheme("E4M3"), Params(scale))
    assert_same_bits(made.codes, expected.view(np.uint8), "E4M3", given=numbers)


@pytest.mark.parametrize("value", oracle.MINIFLOATS)
@pytest.mark.parametrize("scale", [1.0, 0.1, 2.0**-20])
def test_ml_dtypes_codes(backend, numbers, value, scale):
    """ml_dtypes makes NaN or infinity of what is too large, so numbers are clipped first."""
    kind, top = oracle.MINIFLOATS[value], F32(oracle.MAXIMA[value])
    quotients = np.clip(numbers / F32(scale), -top, top)
    expected = quotients.astype(kind)
    scheme = Scheme(value, store="native")
    made = quantize_on(backend, numbers, scheme, Params(np.array(scale, F32)))
    assert_same_bits(made.codes, expected.view(np.uint8), value, given=numbers)
    decoded = dequantize_on(backend, made.words, scheme, numbers.shape, Params(np.array(1, F32)))
    assert_same_bits(decoded, expected.astype(F32), "decoded")


GFLOAT = {
    "E4M3": gfloat.formats.format_info_ocp_e4m3,
    "E5M2": gfloat.formats.format_info_ocp_e5m2,
    "E2M1": gfloat.formats.format_info_ocp_e2m1,
}


@pytest.mark.parametrize("value", GFLOAT)
def test_gfloat_codes(backend, numbers, value):
    """float64 numbers, each rounded once."""
    x = numbers[::3].astype(np.float64) * (1 + 2.0**-40)
    info = GFLOAT[value]
    expected = [gfloat.encode_float(info, gfloat.round_float(info, one, sat=True)) for one in x]
    made = quantize_on(backend, x, Scheme(value, store="native"), Params(np.array(1, F32)))
    assert_same_bits(made.codes, np.array(expected, np.uint8), value, given=x)


@pytest.mark.parametrize("value", GFLOAT)
def test_gfloat_numbers(backend, value):
    codes = np.arange(2 * oracle.SIGN[value], dtype=np.uint8)
    expected = [gfloat.decode_float(GFLOAT[value], int(code)).fval for code in codes]
    scheme = Scheme(value, store="native")
    decoded = dequantize_on(backend, codes, scheme, codes.shape, Params(np.array(1, F32)))
    assert_same_bits(decoded, np.array(expected, F32), value)


@pytest.mark.parametrize(
    ("value", "info"),
    [
        ("E4M3", gfloat.formats.format_info_mxfp8_e4m3),
        ("E5M2", gfloat.formats.format_info_mxfp8_e5m2),
        ("E2M1", gfloat.formats.format_info_mxfp4_e2m1),
    ],
)
def test_gfloat_microscaling_blocks(numbers, value, info):
    """OCP MX with the floor rule, as numbers: gfloat encodes and decodes one block at a time."""
    x = numbers[:320].reshape(10, 32).astype(np.float64)
    scheme = Scheme(value, block=info.k, block_scale="UE8M0")
    q = qn.quantize(x, scheme, scale_rounding="floor")
    expected = [gfloat.quantize_block(info, row, gfloat.compute_scale_amax) for row in x]
    assert_same_bits(q.dequantize(np.float64), np.array(expected), value, given=x)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("F16", np.float16),
        ("BF16", ml_dtypes.bfloat16),
        ("UE4M3", ml_dtypes.float8_e4m3fn),
        ("UE8M0", ml_dtypes.float8_e8m0fnu),
    ],
)
def test_nearest_scales(backend, numbers, dtype, kind):
    """A cast rounds to nearest even. ml_dtypes rounds ties of e8m0 up, so they are left out.

    Beyond the largest number a cast gives infinity or NaN, and here the largest.
    """
    x = np.abs(numbers)
    with np.errstate(over="ignore"):
        expected = np.minimum(x, F32(oracle.scale_numbers(dtype)[-1])).astype(kind).astype(F32)
    if dtype == "UE8M0":
        mantissa = np.frexp(x)[0]
        keep = (mantissa != 0.75) & (x > 2.0**-127)
        x, expected = x[keep], expected[keep]
    scheme = Scheme("Q2S", block=1, block_scale=dtype, store="native")
    made, _ = calibrate_on(backend, x, scheme, scale_rounding="nearest")
    assert_same_bits(made.scales, expected, dtype, given=x)


def test_numpy_rounds_to_even(backend, numbers):
    made = quantize_on(backend, numbers, Scheme("Q8S"), Params(np.array(0.1, F32)))
    expected = np.clip(np.rint(numbers / F32(0.1)), -127, 127).astype(np.int8)
    assert_same_bits(made.codes, expected, "rint", given=numbers)


def test_any_two_agree(backend, numbers):
    """E4M3 by four routes at once: ONNX Runtime, ml_dtypes, gfloat and the search in oracle.py."""
    scheme, params = Scheme("E4M3"), Params(np.array(1, F32))
    made = quantize_on(backend, numbers, scheme, params).codes
    kind = ml_dtypes.float8_e4m3fn
    (onnx,) = run_node(
        "QuantizeLinear", [numbers, params.scales, np.zeros((), kind)], [kind.__name__]
    )
    cast = np.clip(numbers, F32(-448), F32(448)).astype(kind).view(np.uint8)
    info = GFLOAT["E4M3"]
    rounded = [gfloat.round_float(info, float(one), sat=True) for one in numbers]
    encoded = np.array([gfloat.encode_float(info, one) for one in rounded], np.uint8)
    for name, codes in {
        "onnxruntime": onnx.view(np.uint8),
        "ml_dtypes": cast,
        "gfloat": encoded,
        "search": oracle.encode_minifloat(numbers, "E4M3"),
    }.items():
        assert_same_bits(made, codes, name, given=numbers)
