"""burn's own rounding of scales, its scale bytes and its minifloat codes.

Q2S in blocks of one is a bare scale: half its range is 1, so calibration stores |x| itself.
"""

import numpy as np
import pytest

import oracle
from qnumba.errors import DecodeError
from qnumba.layout import plan
from qnumba.params import Params
from qnumba.scheme import Scheme
from qnumba.serialize import decode_scales, encode_scales
from support import assert_same_bits, calibrate_on, dequantize_on, f32, golden, quantize_on

DTYPES = ["F32", "F16", "BF16", "UE8M0", "UE4M3"]
FORMATS = {"e4m3": "E4M3", "e5m2": "E5M2", "e2m1": "E2M1"}


def row_of(name, key, value):
    (row,) = [row for row in golden(name) if row.get(key) == value]
    return row


def bare_scale(dtype):
    return Scheme("Q2S", block=1, block_scale=dtype, store="native")


@pytest.mark.parametrize(
    ("dtype", "finite", "infinite"),
    [("F32", 903, 1), ("F16", 2407, 1), ("BF16", 2593, 0), ("UE4M3", 1871, 1)],
)
def test_round_up(backend, dtype, finite, infinite):
    """The smallest number of the dtype that is not below x, saturating.

    NaN and infinity never reach a scale here: calibration looks at finite values only.
    """
    row = row_of("round_up", "dtype", dtype)
    x, expected = f32(row["x"]), f32(row["y"])
    stored, nonfinite = calibrate_on(backend, x, bare_scale(dtype), nonfinite="clip")
    usable = np.isfinite(x)
    assert (usable.sum(), np.isinf(x).sum()) == (finite, infinite)
    assert_same_bits(stored.scales[usable], np.abs(expected[usable]), dtype, given=x[usable])
    assert nonfinite
    assert not stored.scales[~usable].any()
    assert plan(bare_scale(dtype), x.shape).scale.max == f32([row["max_representable"]])[0]


def test_round_up_of_powers(backend):
    """burn has no rule for UE8M0: here it is the next power of two, from 2**-127 to 2**127."""
    row = row_of("round_up", "dtype", "UE8M0")
    assert row["y"] is None
    x = f32(row["x"])
    x = x[np.isfinite(x)]
    stored, _ = calibrate_on(backend, x, bare_scale("UE8M0"))
    expected = [oracle.store_scale(abs(number), "UE8M0", "up") for number in x]
    assert_same_bits(stored.scales, np.array(expected, np.float32), "UE8M0", given=x)
    assert plan(bare_scale("UE8M0"), x.shape).scale.max == f32([row["max_representable"]])[0]
    assert x.size == 905


@pytest.mark.parametrize(
    ("dtype", "representable", "size"),
    [("F32", 556, 591), ("F16", 327, 2183), ("BF16", 504, 2379), ("UE4M3", 58, 979)],
)
def test_scale_bytes(dtype, representable, size):
    """Bytes of scales. burn rounds to nearest here; qnumba's scales have been stored before.

    So a scale that its dtype cannot hold is refused by the codec, and so are negative, infinite
    and NaN scales, which are no scales.
    """
    row = row_of("scale_codec", "dtype", dtype)
    width, x, decoded = row["bytes_per_scale"], f32(row["x"]), f32(row["decoded"])
    data = bytes.fromhex(row["encoded_hex"])
    compared = refused = 0
    for index, (number, back) in enumerate(zip(x, decoded, strict=True)):
        piece = data[index * width : (index + 1) * width]
        legal = np.isfinite(number) and not np.signbit(number) and number == back
        if legal:
            assert encode_scales(np.array([number]), dtype) == piece
            assert_same_bits(decode_scales(piece, dtype), back[None], dtype)
            compared += 1
        elif number == back == 0:
            continue  # -0.0 is 0: no rule asks for either
        else:
            with pytest.raises(ValueError, match="scale"):
                encode_scales(np.array([number]), dtype)
            refused += 1
    assert (compared, x.size) == (representable, size)
    assert compared + refused >= size - 1  # -0.0 is neither


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_scale_codes(dtype):
    row = row_of("scale_codec", "dtype", dtype)
    codes, expected = np.array(row["decode_codes"], "<u2"), f32(row["decode_values"])
    legal = np.isfinite(expected) & (expected >= 0)
    assert_same_bits(decode_scales(codes[legal].tobytes(), dtype), expected[legal], dtype)
    for code in codes[~legal]:
        with pytest.raises(DecodeError, match="scale"):
            decode_scales(code.tobytes(), dtype)
    assert codes.size == 1772


def test_all_scale_codes_of_ue4m3():
    expected = f32(row_of("scale_codec", "dtype", "UE4M3")["decode_all_256"])
    assert_same_bits(decode_scales(bytes(range(0x7F)), "UE4M3"), expected[:0x7F], "UE4M3")
    for code in range(0x7F, 256):
        assert not (np.isfinite(expected[code]) and expected[code] >= 0) or code == 0x80
        if code != 0x80:
            with pytest.raises(DecodeError, match="scale"):
                decode_scales(bytes([code]), "UE4M3")


def test_scale_codes_of_ue8m0():
    """burn cannot serialise UE8M0 scales; its scalar codec agrees with the bytes here."""
    assert "not implemented" in row_of("scale_codec", "dtype", "UE8M0")["encode_panics"]
    expected = f32(row_of("minifloat", "format", "ue8m0")["decode_all"])
    assert_same_bits(decode_scales(bytes(range(255)), "UE8M0"), expected[:255], "UE8M0")
    assert encode_scales(expected[:255], "UE8M0") == bytes(range(255))
    assert np.isnan(expected[255])
    with pytest.raises(DecodeError, match="scale"):
        decode_scales(b"\xff", "UE8M0")


def test_ue8m0_of_numbers(backend):
    """burn's scalar codec: the next power of two, 0 for what is not positive."""
    row = row_of("minifloat", "format", "ue8m0")
    x, code = f32(row["x"]), np.array(row["code"])
    legal = np.isfinite(x) & ~np.signbit(x)
    stored, _ = calibrate_on(backend, x[legal], bare_scale("UE8M0"))
    expected = np.ldexp(1.0, code[legal] - 127).astype(np.float32)
    assert_same_bits(stored.scales, expected, "UE8M0", given=x[legal])
    assert legal.sum() == 1668


@pytest.mark.parametrize("name", FORMATS)
def test_minifloat_codes(backend, name):
    """Codes at scale 1. NaN: burn gives each format some code; here "clip" makes it 0."""
    row = row_of("minifloat", "format", name)
    x, expected = f32(row["x"]), np.array(row["code"], np.uint8)
    params = Params(np.array(1, np.float32))
    made = quantize_on(backend, x, Scheme(FORMATS[name], store="native"), params, nonfinite="clip")
    expected = np.where(np.isnan(x), 0, expected).astype(np.uint8)
    assert_same_bits(made.codes, expected, name, given=x)
    assert x.size == {"e4m3": 2549, "e5m2": 2514, "e2m1": 1850}[name]


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_minifloat_codes_that_keep_nan(backend, name):
    """Kept NaN: E4M3 0x7F as burn; E5M2 0x7E where burn keeps two payload bits. inf: E5M2 0x7C."""
    row = row_of("minifloat", "format", name)
    x, expected = f32(row["x"]), np.array(row["code"], np.uint8)
    params = Params(np.array(1, np.float32))
    made = quantize_on(backend, x, Scheme(FORMATS[name]), params, nonfinite="keep")
    sign = np.where(np.signbit(x), 0x80, 0)
    if name == "e5m2":
        expected = np.where(np.isnan(x), 0x7E | sign, expected)
        expected = np.where(np.isinf(x), 0x7C | sign, expected)
    assert_same_bits(made.codes, expected.astype(np.uint8), name, given=x)


@pytest.mark.parametrize("name", FORMATS)
def test_minifloat_numbers(backend, name):
    expected = f32(row_of("minifloat", "format", name)["decode_all"])
    scheme = Scheme(FORMATS[name], store="native")
    words = np.arange(expected.size, dtype=np.uint8)
    params = Params(np.array(1, np.float32))
    decoded = dequantize_on(backend, words, scheme, words.shape, params)
    assert_same_bits(decoded, expected, name, given=words)


def test_pairs_of_e2m1(backend):
    """The first of a pair in the low bits, an odd tail padded with 0. NaN: burn 7, here 0.

    The row lists the first number of each pair; the second is read back from the packed byte.
    """
    row = row_of("minifloat", "format", "e2m1x2")
    first, packed = f32(row["x"]), np.array(row["packed"], np.uint8)
    second = oracle.minifloat_numbers("E2M1")[packed >> 4].astype(np.float32)
    x = np.stack([first, second], axis=1).ravel()[:-1]  # 13 numbers: the last pair is half empty
    assert np.isnan(x).nonzero()[0].tolist() == [12]
    packed[6] = 0x00
    params = Params(np.array(1, np.float32))
    made = quantize_on(backend, x, Scheme("E2M1"), params, nonfinite="clip")
    assert_same_bits(made.words, packed, "pairs")


def test_every_dtype_is_covered():
    assert [row["dtype"] for row in golden("round_up")] == DTYPES
    assert sorted(row["dtype"] for row in golden("scale_codec")) == sorted(DTYPES)
