"""Plans: integers only, checked by walking over every element of small arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from qnumba.errors import SchemeError
from qnumba.layout import plan
from qnumba.scheme import Scheme
from strategies import SHAPES, schemes
from support import assert_same_bits, pack_on, unpack_on

CASES = SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), schemes(len(shape))))


def codes_for(scheme, shape, seed=0):
    rng = np.random.default_rng(seed)
    bits = oracle.BITS[scheme.value]
    fields = rng.integers(0, 2**bits, shape)
    if scheme.value.startswith("Q") and scheme.mode != "lookup":
        return np.where(fields >= 2 ** (bits - 1), fields - 2**bits, fields).astype(np.int8)
    return fields.astype(np.uint8)


@given(CASES)
def test_grid_and_blocks(case):
    shape, scheme = case
    made = plan(scheme, shape)
    assert made.grid == oracle.grid_of(scheme, shape)
    assert made.shape == shape
    assert len(made.block) == len(shape)
    if scheme.block is None:
        assert made.block == shape
    else:
        full = oracle.full_block(scheme, shape)
        assert made.block == tuple(max(min(b, n), 1) for b, n in zip(full, shape, strict=True))


@given(CASES)
def test_rows_and_columns_find_every_elements_block(case):
    """The merged geometry names the same block for every element as the plain rule does."""
    shape, scheme = case
    made = plan(scheme, shape)
    rows = int(np.prod([extent for extent, _ in made.outer]))
    size = int(np.prod(shape))
    assert rows * made.cols == size
    if size == 0:
        return
    assert 1 <= made.block_cols <= made.cols
    blocks = np.zeros(shape, int)
    for flat, (_, where) in enumerate(oracle.blocks_of(scheme, shape)):
        blocks[where] = flat
    across = -(-made.cols // made.block_cols)
    extents = [extent for extent, _ in made.outer]
    bands = [-(-extent // step) for extent, step in made.outer]
    found = np.empty((rows, made.cols), int)
    for row in range(rows):
        place = np.unravel_index(row, extents) if extents else ()
        band_place = [int(i) // step for i, (_, step) in zip(place, made.outer, strict=True)]
        band = int(np.ravel_multi_index(band_place, bands)) if bands else 0
        found[row] = band * across + np.arange(made.cols) // made.block_cols
    assert found.ravel().tolist() == blocks.ravel().tolist()


@given(CASES, st.integers(0, 99))
def test_words_as_a_stream_of_bits(case, seed):
    """Where words run along rows, code j of a row sits at bit j * code_bits of its bytes."""
    shape, scheme = case
    made = plan(scheme, shape)
    codes = codes_for(scheme, shape, seed)
    words = oracle.pack(codes, scheme)
    assert words.shape == made.words_shape
    assert words.dtype == made.words_dtype
    before, length, after = made.packed
    assert before * length * after == codes.size
    if after != 1 or codes.size == 0:
        return
    rows = codes.size // made.cols
    stream = np.frombuffer(words.tobytes(), np.uint8)
    assert stream.size == rows * made.row_bytes
    bits = np.unpackbits(stream.reshape(rows, made.row_bytes), axis=1, bitorder="little")
    fields = bits[:, : made.cols * made.code_bits].reshape(rows, made.cols, made.code_bits)
    values = (fields << np.arange(made.code_bits)).sum(axis=2)
    mask = 2**made.code_bits - 1
    assert values.ravel().tolist() == (codes.astype(int).ravel() & mask).tolist()
    assert not bits[:, made.cols * made.code_bits :].any()


@given(case=CASES, seed=st.integers(0, 99))
def test_pack_and_unpack(backend, case, seed):
    shape, scheme = case
    codes = codes_for(scheme, shape, seed)
    words = pack_on(backend, codes, scheme, shape)
    assert_same_bits(words, oracle.pack(codes, scheme), "words")
    assert_same_bits(unpack_on(backend, words, scheme, shape), codes, "codes")


def test_lines_pad_on_their_own():
    assert plan(Scheme("Q4S"), (3, 3)).words_shape == (3, 1)
    assert plan(Scheme("Q4S", pack_axis=1), (3, 3)).words_shape == (1, 3)
    assert plan(Scheme("Q2S"), (5, 17)).words_shape == (5, 2)
    assert plan(Scheme("E2M1"), (5, 3)).words_shape == (5, 2)
    assert plan(Scheme("Q4S", store="native"), (5, 3)).words_shape == (5, 3)
    assert plan(Scheme("Q4S", store="packed_u8"), (5, 3)).words_shape == (5, 2)


def test_the_example_of_a_column_of_words():
    """Shape [16, 4], 8 bits, packed axis 1: word (r, c) packs rows 4r..4r+3 of column c."""
    scheme = Scheme("Q8S", store="packed_u32", pack_axis=1)
    codes = np.arange(64, dtype=np.int8).reshape(16, 4)
    words = oracle.pack(codes, scheme)
    assert words.shape == plan(scheme, (16, 4)).words_shape == (4, 4)
    assert words[1, 2].tobytes() == bytes(codes[4:8, 2].view(np.uint8))


def test_plans_of_huge_shapes_are_integers():
    made = plan(Scheme("Q4S", block=32, block_scale="F16"), (2**40, 2**20))
    assert made.grid == (2**40, 2**15)
    assert made.words_shape == (2**40, 2**17)
    assert made.cols * int(np.prod([extent for extent, _ in made.outer], dtype=object)) == 2**60


def test_plans_are_cached():
    scheme = Scheme("Q4S", block=32)
    assert plan(scheme, (4, 64)) is plan(Scheme("Q4S", block=32), (4, 64))


@pytest.mark.parametrize("shape", [(), (8,)])
def test_a_block_with_more_extents_than_axes(shape):
    with pytest.raises(SchemeError, match="extents"):
        plan(Scheme("Q8S", block=(2, 2)), shape)
