"""Scales as bytes, and the dense record: burn's layout, exact lengths, what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from bytes_support import PAIRS, assert_same_parts, random_parts
from qnumba import reference
from qnumba.errors import DecodeError, SchemeError
from qnumba.formats import SCALES
from qnumba.layout import plan
from qnumba.params import Params
from qnumba.scheme import PRESETS, Scheme
from qnumba.serialize import decode_scales, encode_scales, from_record, record_size, to_record
from support import assert_same_bits, pack_on

# Scales


@pytest.mark.parametrize("dtype", SCALES)
def test_every_code_of_a_scale_dtype_comes_back(dtype):
    width = min(SCALES[dtype].bytes, 2)
    codes = np.arange(2 ** (8 * width)).astype(f"<u{width}")
    if dtype == "F32":  # the upper half of the bits, and the lower half filled
        codes = codes.astype("<u4") << 16 | 0xFFFF
    numbers = {
        "F32": lambda: codes.view("<f4"),
        "F16": lambda: codes.view("<f2"),
        "BF16": lambda: codes.view(ml_dtypes.bfloat16),
        "UE8M0": lambda: codes.view(ml_dtypes.float8_e8m0fnu),
        "UE4M3": lambda: codes.view(ml_dtypes.float8_e4m3fn),
    }[dtype]().astype(np.float32)
    legal = np.isfinite(numbers) & ~np.signbit(numbers)
    assert_same_bits(decode_scales(codes[legal].tobytes(), dtype), numbers[legal], dtype)
    assert encode_scales(numbers[legal], dtype) == codes[legal].tobytes()
    for code, number in zip(codes[~legal][::97], numbers[~legal][::97], strict=True):
        if number != 0:
            with pytest.raises(DecodeError, match="finite and at least 0"):
                decode_scales(code.tobytes(), dtype)


@pytest.mark.parametrize("dtype", SCALES)
@pytest.mark.parametrize("number", [-1.0, np.nan, np.inf, -np.inf, 1 + 2.0**-23, 1e-45, 3e38])
def test_a_scale_that_its_dtype_cannot_hold_is_not_rounded_in_silence(dtype, number):
    scales = np.array([1.0, number], np.float32)
    if dtype == "F32" and np.isfinite(number) and number > 0:
        assert_same_bits(decode_scales(encode_scales(scales, dtype), dtype), scales)
        return
    with pytest.raises(SchemeError, match="not a finite") as caught:
        encode_scales(scales, dtype)
    assert caught.value.field == "scales"
    assert caught.value.value == pytest.approx(number, nan_ok=True)


def test_half_a_scale_is_refused():
    with pytest.raises(DecodeError, match="4 bytes each; got 6"):
        decode_scales(bytes(6), "F32")


def test_p07_subnormal_scales_are_read_as_such():
    assert decode_scales(bytes([0x01, 0x08]), "UE4M3").tolist() == [0.001953125, 0.015625]


def test_p10_scale_bytes_are_codes_not_numbers():
    assert decode_scales(bytes([0x38]), "UE4M3").tolist() == [1.0]


def test_p13_bytes_are_little_endian_on_every_host():
    assert encode_scales(np.float32(1), "F32").hex(" ") == "00 00 80 3f"
    scales = np.array([1.0], ">f4")
    assert encode_scales(scales, "F32").hex(" ") == "00 00 80 3f"
    layout = plan(Scheme("Q4S", store="packed_u32"), (8,))
    words = np.array([0xE32710F8], layout.words_dtype)
    record = to_record(layout, words.astype(">u4"), Params(np.float32(1)))
    assert record.hex(" ") == "f8 10 27 e3 00 00 80 3f"


# The record


@pytest.mark.parametrize(("scheme", "shape"), PAIRS)
def test_record_comes_back(scheme, shape):
    layout, words, params = random_parts(scheme, shape)
    record = to_record(layout, words, params)
    assert len(record) == record_size(layout)
    assert_same_parts(*from_record(record, layout), words, params)


def test_p12_a_record_has_one_length():
    layout, words, params = random_parts(PRESETS["nvfp4"], (3, 33))
    record = to_record(layout, words, params)
    for damaged in (record[:-1], record + b"\0", b""):
        message = f"expected {len(record)} bytes .* got {len(damaged)};"
        with pytest.raises(ValueError, match=message):
            from_record(damaged, layout)


def test_record_is_the_sections_in_order():
    scheme = Scheme("U4", mode="affine", block=2, block_scale="BF16", store="packed_u8")
    layout = plan(scheme, (2, 3))
    words = pack_on(reference, np.array([[1, 2, 3], [4, 5, 15]], np.uint8), scheme, (2, 3))
    scales = np.array([[1, 2], [0.5, 0]], np.float32)
    params = Params(scales, None, np.array([[0, 15], [7, 8]], np.int32))
    expected = "21 03 54 0f  00 0f 07 08  80 3f 00 40 00 3f 00 00"
    assert to_record(layout, words, params) == bytes.fromhex(expected)
    scheme = Scheme("Q8S", block=2, block_scale="UE4M3", tensor_scale="F32")
    words, params = np.array([1, -1, 127], np.int8), Params(scales[1, :] + 1, np.float32(2))
    assert to_record(plan(scheme, (3,)), words, params).hex(" ") == "01 ff 7f 3c 38 00 00 00 40"


def test_zero_points_of_signed_codes_are_signed_bytes():
    layout = plan(Scheme("Q8F", mode="affine"), (1,))
    params = Params(np.array(1, np.float32), None, np.array(-128, np.int32))
    record = to_record(layout, np.array([5], np.int8), params)
    assert record.hex(" ") == "05 80 00 00 80 3f"
    assert from_record(record, layout)[1].zero_points == -128


PADDED = [
    ("Q4S store=packed_u32", (3, 7)),
    ("U2 affine store=packed_u8 pack_axis=1", (2, 5, 3)),
    ("Q2F store=packed_u8", ()),
    ("E2M1", (3, 3)),
    ("E5M2 store=packed_u32", (2, 1)),
    ("U4 lookup table=nf4 store=packed_u32", (16, 2)),
]


@pytest.mark.parametrize(("text", "shape"), PADDED)
def test_bits_beyond_the_codes_are_refused(text, shape):
    """Of all bits of the words, as many may be set as codes have."""
    layout, words, params = random_parts(Scheme.parse(text), shape)
    legal = 0
    for bit in range(8 * words.nbytes):
        record = bytearray(to_record(layout, np.zeros_like(words), params))
        record[bit // 8] |= 1 << bit % 8
        try:
            legal += bool(from_record(record, layout)[0].any())
        except DecodeError as error:
            assert "belong to no code" in str(error)
    assert legal == layout.size * layout.value.bits < 8 * words.nbytes


@pytest.mark.parametrize("text", ["Q4S", "Q2S", "U4 affine", "U2 affine", "E2M1", "Q8S", "Q8F"])
def test_bytes_that_are_no_code_are_refused(text):
    """A native store takes a byte per code: every code of its bits is read, no other byte."""
    layout, _, params = random_parts(Scheme.parse(f"{text} store=native"), (1,))
    lowest = -(2 ** (layout.value.bits - 1)) if text[0] == "Q" else 0
    codes = {code % 256 for code in range(lowest, lowest + 2**layout.value.bits)}
    for byte in range(256):
        record = bytes([byte]) + to_record(layout, np.zeros(1, layout.words_dtype), params)[1:]
        if byte in codes:
            assert to_record(layout, *from_record(record, layout)) == record
        else:
            with pytest.raises(DecodeError, match="belong to no code"):
                from_record(record, layout)


def test_parameters_that_cannot_be_are_refused():
    def read(text, record):
        return from_record(bytes.fromhex(record), plan(Scheme.parse(text), (1,)))

    with pytest.raises(DecodeError, match="zero points run from -9"):
        read("Q4F affine store=native", "00 f7 00 00 80 3f")
    with pytest.raises(DecodeError, match="reads as nan"):
        read("Q8S tensor=UE8M0", "00 ff")
    with pytest.raises(DecodeError, match="reads as -1"):
        read("Q8S block=1:F16 tensor=F32", "00 00 3c 00 00 80 bf")
    with pytest.raises(DecodeError, match="reads as inf"):
        read("Q8S block=1:F16 tensor=F32", "00 00 7c 00 00 80 3f")
    with pytest.raises(DecodeError, match="negative, NaN or infinite"):
        read("Q8S block=1:F16 tensor=F32", "00 ff 7b ff ff 7f 7f")  # 65504 times the largest
