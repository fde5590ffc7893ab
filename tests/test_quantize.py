"""The front door: rounding, calibration, NaN. Numbers worked out by hand."""

import ml_dtypes
import numpy as np
import pytest

import qnumba as qn
from qnumba.errors import DataError
from qnumba.formats import SCALES, VALUES, decode_table
from qnumba.params import Params
from qnumba.scheme import PRESETS, Scheme
from strategies import DTYPES
from support import assert_same_bits, quantize_on

F32 = np.float32
ONE = Params(np.array(1, F32))


def scale(number, zero=None):
    zero = None if zero is None else np.array(zero, np.int32)
    return qn.QParams(np.array(number, F32), None, zero)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_preset_on_every_dtype(name, dtype):
    rng = np.random.default_rng(1)
    x = rng.normal(0, 1, (5, 200)).astype(DTYPES[dtype])
    q = qn.quantize(x, name)
    assert q.scheme == PRESETS[name]
    assert q.shape == x.shape
    error = q.dequantize(np.float64) - x.astype(np.float64)
    limit = {8: 0.04, 4: 0.15, 2: 1.0}[VALUES[q.scheme.value].bits]  # of normal data
    assert np.sqrt(np.mean(error**2) / np.mean(x.astype(np.float64) ** 2)) < limit


@pytest.mark.parametrize("value", VALUES)
def test_the_number_of_every_code(value):
    """decode_table is the meaning of the codes: checked against NumPy and ml_dtypes."""
    kinds = {"E4M3": "float8_e4m3fn", "E5M2": "float8_e5m2", "E2M1": "float4_e2m1fn"}
    codes = np.arange(2 ** VALUES[value].bits, dtype=np.uint8)
    if value in kinds:
        expected = codes.view(getattr(ml_dtypes, kinds[value])).astype(F32)
    elif value.startswith("Q"):
        shift = 8 - VALUES[value].bits
        expected = ((codes << shift).view(np.int8) >> shift).astype(F32)
    else:
        expected = codes.astype(F32)
    assert_same_bits(decode_table(value), expected, value)


def test_scale_rows():
    assert SCALES["F16"].max == 65504
    for name, dtype in (("F16", np.float16), ("BF16", ml_dtypes.bfloat16), ("F32", F32)):
        info = ml_dtypes.finfo(dtype)
        row = SCALES[name]
        assert row.max == float(info.max)
        assert row.tiny == float(info.smallest_subnormal)
        assert row.mantissa_bits == info.nmant
        assert row.bytes == np.dtype(dtype).itemsize
    info = ml_dtypes.finfo(ml_dtypes.float8_e4m3fn)
    assert (SCALES["UE4M3"].max, SCALES["UE4M3"].tiny) == (448, float(info.smallest_subnormal))


# --- rounding


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [("even", [0, 0, 2, -2, 2, -2, 0, 0]), ("away", [1, -1, 2, -2, 3, -3, 0, 0])],
)
def test_ties(backend, rounding, expected):
    below = np.nextafter(F32(0.5), F32(0))
    x = np.array([0.5, -0.5, 1.5, -1.5, 2.5, -2.5, below, -below], F32)
    made = quantize_on(backend, x, Scheme("Q8S"), ONE, rounding=rounding)
    assert made.codes.tolist() == expected


@pytest.mark.parametrize("rounding", ["even", "away"])
def test_halves_beyond_what_float32_holds(backend, rounding):
    """x + 0.5 would round; codes this large are clamped, but neighbours of 2**23 must not wrap."""
    x = np.array([2**23 - 0.5, 2**23 + 1, -(2**23) + 0.5, 2**31, -(2**31), 3e38], F32)
    made = quantize_on(backend, x, Scheme("Q8F"), ONE, rounding=rounding)
    assert made.codes.tolist() == [127, 127, -128, 127, -128, 127]


def test_a_true_division(backend):
    x = np.array([1.55, 4.95], F32)
    made = quantize_on(backend, x, Scheme("Q8S"), Params(np.array(0.1, F32)))
    assert made.codes.tolist() == [15, 49]


def test_float64_is_rounded_once(backend):
    above = np.array([0.5 + 2.0**-40, 1.5 - 2.0**-40, -0.5 - 2.0**-40, 0.5])
    assert quantize_on(backend, above, Scheme("Q8S"), ONE).codes.tolist() == [1, 1, -1, 0]
    x = np.array([17 + 1e-9, 17.0, 19 - 1e-9, 2.0**-10 + 2.0**-60])
    assert quantize_on(backend, x, Scheme("E4M3"), ONE).codes.tolist() == [0x59, 0x58, 0x59, 0x01]


def test_minifloats_keep_the_sign_of_zero(backend):
    for value, sign in (("E4M3", 0x80), ("E5M2", 0x80), ("E2M1", 0x08)):
        x = np.array([0.0, -0.0, 1e-30, -1e-30], F32)
        assert quantize_on(backend, x, Scheme(value), ONE).codes.tolist() == [0, sign, 0, sign]
        made = quantize_on(backend, x * 0, Scheme(value))
        assert made.codes.tolist() == [0, sign, 0, sign]
        assert made.params.scales == 0


def test_affine_adds_the_zero_point_after_rounding(backend):
    params = Params(np.array(1, F32), None, np.array(1, np.int32))
    x = np.array([0.5, 1.5, 2.5, -0.5], F32)
    assert quantize_on(backend, x, Scheme("U8", mode="affine"), params).codes.tolist() == [
        1,
        3,
        3,
        1,
    ]
    made = quantize_on(backend, x, Scheme("U8", mode="affine"), params, rounding="away")
    assert made.codes.tolist() == [2, 3, 4, 0]


# --- calibration


@pytest.mark.parametrize(
    ("value", "divisor"),
    [("Q8S", 127), ("Q8F", 127.5), ("Q4S", 7), ("Q4F", 7.5), ("Q2S", 1), ("Q2F", 1.5),
     ("E4M3", 448), ("E5M2", 57344), ("E2M1", 6)],
)  # fmt: skip
def test_symmetric_scales(value, divisor):
    x = np.array([1.0, -3.0, 2.0], F32)
    assert qn.calibrate(x, value).scales == F32(3) / F32(divisor)
    assert qn.calibrate(x.astype(np.float64), value).scales == upwards(3 / divisor)


def upwards(number):
    nearest = F32(number)
    return nearest if float(nearest) >= number else np.nextafter(nearest, F32(np.inf))


@pytest.mark.parametrize(
    ("value", "x", "numbers", "zero"),
    [
        ("U8", [-1, 0, 1], 2 / 255, 128),  # rint(0 - -1/stored) = rint(127.4999...) in float32
        ("U8", [10, 12.5, 15], 15 / 255, 0),
        ("U8", [-2, -1], 2 / 255, 255),
        ("Q8F", [10, 12.5, 15], 15 / 255, -128),
        ("Q8S", [-254, 0], 1, 127),
        ("U4", [-3, 12], 1, 3),
        ("U2", [0, 3], 1, 0),
        ("U8", [0, 0], 1, 0),
        ("Q8F", [0, -0.0], 1, 0),
    ],
)
def test_affine_parameters(value, x, numbers, zero):
    params = qn.calibrate(np.array(x, F32), Scheme(value, mode="affine"))
    assert params.scales == F32(numbers)
    if x == [-1, 0, 1]:
        zero = int(np.rint(F32(0) - F32(-1) / params.scales))
    assert params.zero_points == zero
    assert params.zero_points.dtype == np.int32


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_affine_ranges_that_overflow(backend, dtype):
    big = np.finfo(dtype).max
    x = np.array([-big, big], dtype)
    made = quantize_on(backend, x, Scheme("U8", mode="affine"))
    if dtype == np.float32:
        assert made.params.scales == (big / 2 + big / 2) / F32(127.5)
        assert made.codes.tolist() == [0, 255] or made.codes.tolist() == [0, 254]
    else:
        assert made.params.scales == np.finfo(F32).max
    assert np.isfinite(made.params.scales)


def test_two_levels_by_hand(backend):
    """amax of 2688 with 6 * 448: the global scale is 1, block scales are amax / 6."""
    x = np.zeros((2, 16), F32)
    x[0, 3], x[1, 5] = 2688, -6
    made = quantize_on(backend, x, PRESETS["nvfp4"])
    assert made.params.global_scale == 1
    assert made.params.scales.ravel().tolist() == [448, 1]
    assert made.codes[0, 3] == 7
    assert made.codes[1, 5] == 15


@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-30, 1.0, 1e30, 3.4e38])
@pytest.mark.parametrize("scheme", ["nvfp4", "Q8S block=4:F16 tensor=F32"])
def test_two_levels_of_any_size(backend, scheme, size):
    known = Scheme.parse(scheme)
    x = np.linspace(-1, 1, 32, dtype=F32).reshape(2, 16) * F32(size)
    made = quantize_on(backend, x, known)
    assert made.params.global_scale >= F32(2.0**-126)
    e = made.params.global_scale * made.params.scales
    assert np.isfinite(e).all()
    decoded = qn.quantize(x, known).dequantize()
    assert np.isfinite(decoded).all()
    if size > 1e-30:
        assert np.abs(decoded - x).max() < np.abs(x).max() * 0.17


def test_absmean(backend):
    x = np.array([1, -2, 3, -6, 0, 0, 0, 8], F32)
    made = quantize_on(backend, x, Scheme("Q2S", block=4), method="absmean")
    assert made.params.scales.tolist() == [3, 2]
    assert made.codes.tolist() == [0, -1, 1, -1, 0, 0, 0, 1]
    holes = np.array([np.nan, 2, 4, np.inf], F32)
    made = quantize_on(backend, holes, Scheme("Q2S"), method="absmean", nonfinite="clip")
    assert made.params.scales == 3
    assert made.codes.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("size", [1, 255, 256, 257, 65535, 65536, 65537, 200_000])
def test_absmean_of_many(backend, reference, size):
    """The order of the sum is part of the contract, so long sums agree to the last bit."""
    rng = np.random.default_rng(size)
    for dtype in (np.float32, np.float64):
        x = (rng.normal(0, 1, size) * 10.0 ** rng.integers(-6, 6, size)).astype(dtype)
        made = quantize_on(backend, x, Scheme("Q2S"), method="absmean").params
        expected = quantize_on(reference, x, Scheme("Q2S"), method="absmean").params
        assert_same_bits(made.scales, expected.scales, "scale")
        exact = np.abs(x.astype(np.longdouble)).mean()
        assert abs(float(made.scales) - float(exact)) <= float(exact) * 2.0**-22


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("up", [2.0**-8, 2.0**-8, 2.0**-7, 2.0**-7]), ("floor", [2.0**-8] * 4),
     ("even", [2.0**-8, 2.0**-8, 2.0**-8, 2.0**-7]), ("nearest", [2.0**-9, 2.0**-8, 2.0**-8, 2.0**-8])],
)  # fmt: skip
def test_rules_for_powers_of_two(backend, rule, expected):
    """E4M3: amax 1, 1.75, 1.875 - ulp, 1.9375. floor: 2**(0 - 8). even: amax to 3 bits first."""
    amax = np.array([1, 1.75, np.nextafter(F32(1.9375), F32(0)), 1.9375], F32)
    scheme = Scheme("E4M3", block=1, block_scale="UE8M0")
    made = quantize_on(backend, amax, scheme, scale_rounding=rule).params
    assert made.scales.tolist() == expected


def test_nearest_scales(backend):
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65504 + 17, 2.0**-25, 1e-9], F32)
    scheme = Scheme("Q2S", block=1, block_scale="F16")
    made = quantize_on(backend, x, scheme, scale_rounding="nearest").params
    assert made.scales.tolist() == [1, 1 + 2.0**-9, 65504, 0, 0]
    made = quantize_on(backend, x, scheme).params
    assert made.scales.tolist() == [1 + 2.0**-10, 1 + 2.0**-9, 65504, 2.0**-24, 2.0**-24]


def test_a_scale_that_rounds_to_zero(backend):
    x = np.array([1e-9, -1e-9], F32)
    for value, codes in (("Q8S", [0, 0]), ("E4M3", [0, 0x80])):
        made = quantize_on(backend, x, Scheme(value, tensor_scale="F16"), scale_rounding="nearest")
        assert made.params.scales == 0
        assert made.codes.tolist() == codes
    affine = Scheme("Q8S", mode="affine", tensor_scale="F16")
    made = quantize_on(backend, x, affine, scale_rounding="nearest")
    assert (made.params.scales, made.params.zero_points) == (0, 0)
    assert made.codes.tolist() == [0, 0]


def test_given_scales_are_stored_first():
    """Explicit scales pass through the scale dtype, upwards or to the nearest."""
    x = np.array([1.0, -2.0], F32)
    q = qn.quantize(x, "Q8S tensor=F16", params=scale(0.1))
    assert q.scales == 0.10003662109375
    q = qn.quantize(x, "Q8S tensor=F16", params=scale(0.1), scale_rounding="nearest")
    assert q.scales == 0.0999755859375
    q = qn.quantize(x, "Q8S tensor=UE8M0", params=scale(0.0))
    assert q.scales == 2.0**-127
    q = qn.quantize(x, "Q8S", params=qn.QParams(np.float64(0.1)))
    assert q.scales == upwards(0.1)


# --- NaN and infinity


def test_raise_names_count_and_place():
    x = np.ones((3, 4), F32)
    x[1, 2] = np.nan
    x[2, 2] = np.inf
    with pytest.raises(DataError, match=r"1 NaN and 1 infinite of 12 values.*\(1, 2\)"):
        qn.quantize(x, "Q8S")
    with pytest.raises(DataError, match=r"\(1, 2\)"):
        qn.calibrate(x, "Q8S")
    with pytest.raises(DataError, match=r"\(1, 2\)"):
        qn.quantize(x, "Q8S", params=scale(1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_clip(backend, dtype):
    x = np.array([np.nan, np.inf, -np.inf, -np.nan, 2.0], DTYPES[dtype])
    made = quantize_on(backend, x, Scheme("Q8S"), nonfinite="clip")
    assert made.nonfinite
    assert made.codes.tolist() == [0, 127, -127, 0, 127]
    made = quantize_on(backend, x, Scheme("U8", mode="affine"), nonfinite="clip")
    zero = int(made.params.zero_points)
    assert made.codes.tolist() == [zero, 255, 0, zero, 255]
    made = quantize_on(backend, x, Scheme("E4M3"), nonfinite="clip")
    assert made.codes.tolist() == [0, 0x7E, 0xFE, 0, 0x7E]
    made = quantize_on(backend, x, Scheme("E5M2"), nonfinite="clip")
    assert made.codes.tolist() == [0, 0x7B, 0xFB, 0, 0x7B]
    made = quantize_on(backend, x, Scheme("E2M1"), nonfinite="clip")
    assert made.codes.tolist() == [0, 7, 15, 0, 7]
    made = quantize_on(backend, x, Scheme("U4", mode="lookup", table="nf4"), nonfinite="clip")
    assert made.codes.tolist() == [7, 15, 0, 7, 15]


@pytest.mark.parametrize("dtype", DTYPES)
def test_keep(backend, dtype):
    x = np.array([np.nan, np.inf, -np.inf, 2.0], DTYPES[dtype])
    x = np.concatenate([x, -x[:1]])
    made = quantize_on(backend, x, Scheme("E4M3"), nonfinite="keep")
    assert made.codes.tolist() == [0x7F, 0x7E, 0xFE, 0x7E, 0xFF]
    made = quantize_on(backend, x, Scheme("E5M2"), nonfinite="keep")
    assert made.codes.tolist() == [0x7E, 0x7C, 0xFC, 0x7B, 0xFE]
    decoded = qn.quantize(x, "E5M2", nonfinite="keep").dequantize()
    assert np.isnan(decoded[[0, 4]]).all()
    assert decoded[1:4].tolist() == [np.inf, -np.inf, 2]


def test_one_bad_value_leaves_its_neighbours_alone(backend):
    rng = np.random.default_rng(3)
    x = rng.normal(0, 1, (8, 96)).astype(F32)
    x[:, 5] = 0
    bad = x.copy()
    for row, number in enumerate([np.nan, np.inf, -np.inf, -np.nan] * 2):
        bad[row, 5] = number
    keep = np.arange(96) != 5
    for name, scheme in PRESETS.items():
        if scheme.mode == "affine":
            continue
        clean = quantize_on(backend, x, scheme)
        made = quantize_on(backend, bad, scheme, nonfinite="clip")
        assert_same_bits(made.params.scales, clean.params.scales, name)
        assert_same_bits(made.codes[:, keep], clean.codes[:, keep], name)


def test_all_bad(backend):
    x = np.full(5, np.nan, F32)
    for name, scheme in PRESETS.items():
        made = quantize_on(backend, x, scheme.replace(block=None, block_scale=None, tensor_scale=None),
                           nonfinite="clip")  # fmt: skip
        assert made.nonfinite
        assert len(set(made.codes.tolist())) == 1, name
