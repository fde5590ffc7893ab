"""The container: what comes back, without a copy. The page on bytes is read, and its reader run."""

from __future__ import annotations

import ast
import io
import mmap
import pickle
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytes_support import PAIRS, SHAPES, assert_same_parts, container, random_parts
from qnumba import reference
from qnumba.errors import QuantizedTypeError
from qnumba.layout import plan
from qnumba.params import Options, Params
from qnumba.scheme import PRESETS
from qnumba.serialize import (
    container_parts,
    from_bytes,
    from_record,
    to_bytes,
    to_record,
)
from strategies import schemes
from support import assert_same_bits, quantize_on

PAGE = Path(__file__).resolve().parents[1] / "docs" / "bytes.md"


@pytest.mark.parametrize(("scheme", "shape"), PAIRS)
def test_container_comes_back_bit_for_bit(scheme, shape):
    layout, words, params = random_parts(scheme, shape)
    made = {"dtype": "bfloat16", "options": "rounding=even", "writer": "qnumba 1.2.3"}
    data = to_bytes(layout, words, params, **made)
    contents = from_bytes(data)
    assert contents.scheme == scheme
    assert contents.shape == shape
    assert {name: getattr(contents, name) for name in made} == made
    assert_same_parts(contents.words, contents.params, words, params)
    assert to_bytes(layout, contents.words, contents.params, **made) == data
    assert b"".join(container_parts(layout, words, params, **made)) == data


@given(st.data())
def test_bytes_come_back_over_the_whole_scheme_space(data):
    shape = data.draw(st.sampled_from(SHAPES))
    layout, words, params = random_parts(data.draw(schemes(rank=len(shape))), shape)
    record = to_record(layout, words, params)
    assert_same_parts(*from_record(record, layout), words, params)
    given_bytes = to_bytes(layout, words, params, dtype="float64", options="o", writer="l")
    contents = from_bytes(given_bytes)
    assert contents[:3] == (layout.scheme, shape, "float64")
    assert contents[5:] == ("o", "l")
    assert_same_parts(contents.words, contents.params, words, params)


def test_p16_a_container_says_what_it_is():
    layout, words, params = random_parts(PRESETS["nvfp4"], (2, 40))
    contents = from_bytes(to_bytes(layout, words, params, dtype="float16", options="rounding=even"))
    assert str(contents.scheme) == "E2M1 block=16:UE4M3 tensor=F32"
    assert (contents.shape, contents.dtype, contents.options) == (
        (2, 40),
        "float16",
        "rounding=even",
    )
    assert re.fullmatch(r"qnumba \d+\.\d+.*", contents.writer)


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
    layout, made = plan(PRESETS["int8"], x.shape), quantize_on(reference, x, PRESETS["int8"])
    options = " ".join(f"{name}={choice}" for name, choice in Options()._asdict().items())
    said = {"dtype": "float32", "options": options, "writer": "qnumba 0.1.0"}
    assert data == to_bytes(layout, made.words, made.params, **said)
    for row in dump.splitlines():
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in rows[int(row[:8], 16)])
        assert row[59:] == shown
