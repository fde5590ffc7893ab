"""Bytes: the record, the container, and what is refused. The page on bytes is read and run."""

from __future__ import annotations

import ast
import io
import itertools
import mmap
import pickle
import re
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytes_support import assert_same_parts, container, random_parts
from qnumba import reference
from qnumba.errors import DecodeError, QuantizedTypeError, SchemeError
from qnumba.formats import SCALES
from qnumba.layout import plan
from qnumba.params import Params
from qnumba.scheme import PRESETS, Scheme
from qnumba.serialize import (
    container_parts,
    decode_scales,
    encode_scales,
    from_bytes,
    from_record,
    record_size,
    to_bytes,
    to_record,
)
from strategies import schemes
from support import (
    assert_same_bits,
    code_dtype,
    f32,
    golden,
    golden_scheme,
    pack_on,
    quantize_on,
    unpack_on,
)

PAGE = Path(__file__).resolve().parents[1] / "docs" / "bytes.md"
SHAPES = ((3, 33), (2, 3, 40), (130,), (0, 5), ())
ROWS = golden("quantized_bytes")


def fits(scheme, shape):
    return len(scheme.block or ()) <= len(shape)


PAIRS = [
    pytest.param(scheme, shape, id=f"{name}-{shape}")
    for (name, scheme), shape in itertools.product(PRESETS.items(), SHAPES)
    if fits(scheme, shape)
]


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


@given(st.data())
def test_bytes_come_back_over_the_whole_scheme_space(data):
    shape = data.draw(st.sampled_from(SHAPES))
    layout, words, params = random_parts(data.draw(schemes(rank=len(shape))), shape)
    record = to_record(layout, words, params)
    assert_same_parts(*from_record(record, layout), words, params)
    given_bytes = to_bytes(layout, words, params, dtype="float64", options="o", library="l")
    contents = from_bytes(given_bytes)
    assert contents[:3] == (layout.scheme, shape, "float64")
    assert contents[5:] == ("o", "l")
    assert_same_parts(contents.words, contents.params, words, params)


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


@pytest.mark.parametrize("row", [row for row in ROWS if row["kind"] == "new"])
def test_record_is_that_of_burn(row):
    """The bytes burn writes, except three of its habits.

    burn rounds scales while writing (here they were stored before); it does not pad the last word
    of 8-bit codes; it writes E2M1 and sub-byte codes of any store a byte each, E2M1 as numbers.
    """
    scheme, shape = golden_scheme(row["scheme"]), tuple(row["shape"])
    layout = plan(scheme, shape)
    scales = f32(row["decoded_scales"]).reshape(layout.grid)
    global_scale = None if row["global"] is None else f32([row["global"]])[0]
    codes = np.array(row["values"], np.int8).reshape(shape).astype(code_dtype(scheme))
    if scheme.value == "E2M1":
        codes &= 0x0F
    record = to_record(
        layout, pack_on(reference, codes, scheme, shape), Params(scales, global_scale)
    )
    expected = bytes.fromhex(row["bytes"])
    if scheme.value == "E2M1":
        expected = bytes(b & 0x0F for b in expected[: codes.size]) + expected[codes.size :]
    if scheme.store == "packed_u32":
        padding = bytes(-codes.size % 4)
        expected = expected[: codes.size] + padding + expected[codes.size :]
    assert record == expected
    assert len(record) == row["quantized_data_len"]


def test_burn_reads_packed_words_flat_and_here_each_line_is_padded():
    """What burn decodes is decoded alike where its flat stream and our lines agree: no padding."""
    compared = padded = 0
    for row in ROWS:
        if row["kind"] != "decode_packed":
            continue
        scheme, shape = golden_scheme(row["scheme"]), tuple(row["shape"])
        data, layout = bytes.fromhex(row["bytes"]), plan(scheme, shape)
        if shape[-1] * layout.value.bits % 32:
            padded += 1  # the vectors fill the padding with random bits: damaged, or another length
            with pytest.raises(DecodeError):
                from_record(data, layout)
            continue
        words, params = from_record(data, layout)
        codes = unpack_on(reference, words, scheme, shape)
        assert codes.ravel().tolist() == row["decoded_values"]
        assert_same_bits(params.scales.ravel(), f32(row["decoded_scales"]))
        compared += 1
    assert (compared, padded) == (8, 12)


# The container


@pytest.mark.parametrize(("scheme", "shape"), PAIRS)
def test_container_comes_back_bit_for_bit(scheme, shape):
    layout, words, params = random_parts(scheme, shape)
    made = {"dtype": "bfloat16", "options": "rounding=even", "library": "qnumba 1.2.3"}
    data = to_bytes(layout, words, params, **made)
    contents = from_bytes(data)
    assert contents.scheme == scheme
    assert contents.shape == shape
    assert {name: getattr(contents, name) for name in made} == made
    assert_same_parts(contents.words, contents.params, words, params)
    assert to_bytes(layout, contents.words, contents.params, **made) == data
    assert b"".join(container_parts(layout, words, params, **made)) == data


def test_p16_a_container_says_what_it_is():
    layout, words, params = random_parts(PRESETS["nvfp4"], (2, 40))
    contents = from_bytes(to_bytes(layout, words, params, dtype="float16", options="rounding=even"))
    assert str(contents.scheme) == "E2M1 block=16:UE4M3 tensor=F32"
    assert (contents.shape, contents.dtype, contents.options) == (
        (2, 40),
        "float16",
        "rounding=even",
    )
    assert re.fullmatch(r"qnumba \d+\.\d+.*", contents.library)


def sources(data, tmp_path):
    """Yield bytes in everything that can hold them without a copy."""
    path = tmp_path / "container"
    path.write_bytes(data)
    with path.open("rb") as file:
        yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    yield from (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8))
    yield np.memmap(path, np.uint8, "r")
    yield pickle.PickleBuffer(data)
    yield io.BytesIO(data).getbuffer()


@pytest.mark.parametrize("name", ["int4", "nvfp4", "int8"])
def test_words_are_a_view_of_any_buffer(name, tmp_path):
    data = container(PRESETS[name], (3, 33))
    for source in sources(data, tmp_path):
        contents = from_bytes(source)
        assert_same_bits(contents.words, from_bytes(data).words)
        assert np.shares_memory(contents.words, np.frombuffer(source, np.uint8))
        assert not contents.words.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            contents.words[...] = 0


def test_copied_words_are_free_of_the_buffer():
    data = bytearray(container(PRESETS["int4"], (3, 33)))
    contents = from_bytes(data, copy=True)
    assert contents.words.flags.writeable
    assert contents.words.flags.owndata or contents.words.base.flags.owndata
    data.clear()  # Python refuses this while a view of the buffer lives


@pytest.mark.parametrize("shift", range(1, 5))
def test_a_buffer_that_is_not_aligned_is_copied(shift):
    data = container(PRESETS["int4"], (3, 33))
    moved = memoryview(bytes(shift) + data)[shift:]
    contents = from_bytes(moved)
    assert contents.words.flags.aligned
    assert not contents.words.flags.writeable
    assert_same_bits(contents.words, from_bytes(data).words)


def test_big_words_are_not_copied_to_be_written_or_read():
    layout = plan(PRESETS["int8"], (1 << 22,))
    words, params = np.ones(layout.shape, np.int8), Params(np.array(1, np.float32))
    parts = container_parts(layout, words, params, dtype="float32")
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), words) for part in parts)
    data = b"".join(parts)
    tracemalloc.start()
    from_bytes(data)
    assert tracemalloc.get_traced_memory()[1] < 1 << 16
    tracemalloc.stop()


@pytest.mark.parametrize("given_buffer", ["text", None, 3, [1, 2]])
def test_what_is_no_buffer_is_named(given_buffer):
    for read in (from_bytes, lambda buffer: from_record(buffer, plan(PRESETS["int8"], (1,)))):
        with pytest.raises(QuantizedTypeError, match=type(given_buffer).__name__):
            read(given_buffer)


def test_a_strided_buffer_is_refused():
    data = container(PRESETS["nvfp4"], (3, 33))
    doubled = np.repeat(np.frombuffer(data, np.uint8), 2)[::2]
    with pytest.raises(QuantizedTypeError, match="strided"):
        from_bytes(doubled)
    assert from_bytes(doubled.tobytes()).scheme == PRESETS["nvfp4"]


# The page


def blocks(language):
    return re.findall(
        rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


def reader():
    """Return the reader of the page, which knows nothing of qnumba."""
    source = next(block for block in blocks("python") if "def read" in block)
    names = {}
    exec(compile(source, "bytes.md", "exec"), names)  # noqa: S102 - our own page
    modules = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import)]
    assert {alias.name for node in modules for alias in node.names} == {"struct", "zlib"}
    assert "qnumba" not in source
    assert len(source.splitlines()) <= 36
    return names["read"]


@pytest.mark.parametrize("name", ["int8", "nvfp4"])
@pytest.mark.parametrize("shape", [(3, 33), (130,), (2, 3, 32), (0, 5), (1,)])
def test_the_reader_of_the_page_reads(name, shape):
    layout, words, params = random_parts(PRESETS[name], shape)
    out = np.empty(shape, np.float32)
    reference.dequantize(words, layout, params, out)
    data = to_bytes(layout, words, params, dtype="float32")
    read_shape, numbers = reader()(data)
    assert tuple(read_shape) == shape
    assert_same_bits(np.array(numbers, np.float32).reshape(shape), out)


def test_the_dump_of_the_page_is_the_container_it_says():
    (dump,) = blocks("text")
    rows = {int(line[:8], 16): bytes.fromhex(line[10:57]) for line in dump.splitlines()}
    end = max(rows) + len(rows[max(rows)])
    data = b"".join(rows.get(at, bytes(16)) for at in range(0, end, 16))[:end]
    page = re.search(r"np.array\((\[\[.*?\]\]), np.float32\)", PAGE.read_text("utf-8"))[1]
    x = np.array(ast.literal_eval(page), np.float32)
    made = quantize_on(reference, x, PRESETS["int8"])
    assert data == to_bytes(
        plan(PRESETS["int8"], x.shape), made.words, made.params, "float32", library="qnumba 0.1.0"
    )
    for row in dump.splitlines():
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in rows[int(row[:8], 16)])
        assert row[59:] == shown
