"""Lookup: codes that index a table, from making them to the bytes that carry the table."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest

import qnumba as qn
from qnumba.moves import InexactMoveError
from support import assert_same_bits, dequantize_on, pack_on, quantize_on

RNG = np.random.default_rng(2)
# QLoRA (Dettmers et al., 2023), appendix E, to the digits printed there.
NF4 = [
    "-1.0",
    "-0.6961928009986877",
    "-0.5250730514526367",
    "-0.39491748809814453",
    "-0.28444138169288635",
    "-0.18477343022823334",
    "-0.09105003625154495",
    "0.0",
    "0.07958029955625534",
    "0.16093020141124725",
    "0.24611230194568634",
    "0.33791524171829224",
    "0.44070982933044434",
    "0.5626170039176941",
    "0.7229568362236023",
    "1.0",
]


def sorted_normal(size):
    return np.sort(RNG.normal(size=size).astype(np.float32))


# name -> value type and table
TABLES = {
    "nf4": ("U4", "nf4"),
    "nf4 with two's complement codes": ("Q4F", "nf4"),
    "4 entries": ("U2", (-1.0, -0.25, 0.5, 1.0)),
    "4 positive entries": ("Q2S", (0.5, 1.0, 1.5, 7.0)),
    "4 negative entries": ("U2", (-9.0, -2.0, -1.5, -1.0)),
    "equal entries": ("U2", (-1.0, 0.0, 0.0, 1.0)),
    "equal first and last entries": ("U2", (-1.0, -1.0, 2.0, 2.0)),
    "three equal entries": ("U2", (0.5, 0.5, 0.5, 1.0)),
    "16 entries": ("U4", sorted_normal(16)),
    "16 tiny entries": ("U4", np.arange(16, dtype=np.float32) * np.float32(2.0**-149)),
    "16 huge entries": ("U4", np.linspace(-3e38, 3e38, 16, dtype=np.float32)),
    "256 entries": ("U8", sorted_normal(256)),
    "256 entries as int8": ("Q8S", np.arange(-128, 128) / 64),
    "256 of powers": ("Q8F", np.sort(np.r_[-(2.0 ** -np.arange(128)), 2.0 ** -np.arange(128)])),
}
LEVELS = {
    "tensor": {},
    "tensor UE8M0": {"tensor_scale": "UE8M0"},
    "block": {"block": 16},
    "columns": {"block": (5, 1), "block_scale": "BF16"},
    "rectangles": {"block": (2, 16), "block_scale": "UE4M3"},
    "two": {"block": 16, "block_scale": "UE4M3", "tensor_scale": "F32"},
}
STORES = {
    2: ("native", "packed_u32", "packed_u8"),
    4: ("native", "packed_u32", "packed_u8"),
    8: ("native", "packed_u32"),
}
BITS = {"U2": 2, "Q2S": 2, "U4": 4, "Q4F": 4, "U8": 8, "Q8S": 8, "Q8F": 8}
X = (RNG.normal(size=(7, 40)) * 10.0 ** RNG.integers(-2, 3, (7, 1))).astype(np.float32)


def scheme_of(name, level="tensor", **more):
    value, table = TABLES[name]
    table = table if isinstance(table, str) else tuple(map(float, table))
    return qn.Scheme(value, mode="lookup", table=table, **LEVELS[level], **more)


def entries_of(name):
    table = TABLES[name][1]
    return np.array(NF4 if isinstance(table, str) else table, np.float64).astype(np.float32)


def nearest(ratio, entries):
    """Return the index of the entry nearest to a number, the lower of two."""
    distances = [abs(Fraction(float(entry)) - Fraction(float(ratio))) for entry in entries]
    return distances.index(min(distances))


def effective_scales(q):
    """Return what every element's entry is multiplied by."""
    scales = q.scales if q.global_scale is None else np.float32(q.global_scale) * q.scales
    block = (1,) * (q.ndim - len(q.scheme.block)) + q.scheme.block if q.scheme.block else q.shape
    places = [np.arange(n) // b for n, b in zip(q.shape, block, strict=True)]
    grid = scales.reshape(scales.shape or (1,) * q.ndim)
    return grid[np.ix_(*places)].astype(np.float32)


def test_nf4_is_the_table_of_the_paper():
    assert_same_bits(np.array(qn.PRESETS["nf4"].table, np.float32), entries_of("nf4"))
    assert qn.PRESETS["nf4"] == qn.Scheme("U4", mode="lookup", block=64, table="nf4")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", TABLES)
def test_codes_are_the_nearest_entries_and_decode_to_them(backend, name, level):
    scheme, entries = scheme_of(name, level), entries_of(name)
    with np.errstate(all="ignore"):
        made = quantize_on(backend, X, scheme)
        q = qn.quantize(X, scheme)
        e = effective_scales(q)
        ratio = np.where(e == 0, np.float32(0), X / np.where(e == 0, np.float32(1), e))
    assert made.codes.dtype == np.uint8
    assert np.array_equal(made.codes, q.codes())
    wanted = [0 if s == 0 else nearest(r, entries) for r, s in zip(ratio.flat, e.flat, strict=True)]
    assert made.codes.reshape(-1).tolist() == wanted
    for dtype in (np.float32, np.float64):
        with np.errstate(all="ignore"):
            expected = entries[made.codes].astype(dtype) * e.astype(dtype)
            found = dequantize_on(backend, made.words, scheme, X.shape, made.params, dtype)
        assert_same_bits(found, expected)


@pytest.mark.parametrize("pack_axis", [0, 1])
@pytest.mark.parametrize("name", TABLES)
def test_every_store_holds_the_same_codes(backend, name, pack_axis):
    bits = BITS[TABLES[name][0]]
    codes = RNG.integers(0, 2**bits, X.shape).astype(np.uint8)
    for store in STORES[bits]:
        scheme = scheme_of(name, store=store, pack_axis=pack_axis)
        words = pack_on(backend, codes, scheme, X.shape)
        assert (words.dtype == np.uint8) == (store != "packed_u32")
        q = qn.QArray.from_record(words.tobytes() + np.float32(0.5).tobytes(), scheme, X.shape)
        assert np.array_equal(q.codes(), codes)
        assert_same_bits(q.dequantize(), entries_of(name)[codes] * np.float32(0.5))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", TABLES)
def test_records_and_containers_carry_all_of_it(name, level):
    for store in STORES[BITS[TABLES[name][0]]]:
        scheme = scheme_of(name, level, store=store)
        q = qn.quantize(X, scheme)
        assert q.to_record()[: q.words.nbytes] == q.words.tobytes()
        assert qn.QArray.from_record(q.to_record(), scheme, q.shape) == q
        data = q.to_bytes()
        assert entries_of(name).astype("<f4").tobytes() in data
        read = qn.QArray.from_bytes(data)
        assert read == q
        assert read.scheme.table == tuple(map(float, entries_of(name)))
        assert_same_bits(read.dequantize(), q.dequantize())
        assert pickle.loads(pickle.dumps(q)) == q


def test_a_record_of_nf4_byte_by_byte():
    x = np.array([[1.0, -1.0, 0.0, 0.25, 0.5], [0.0, 0.0, 0.0, 0.0, 8.0]], np.float32)
    q = qn.quantize(x, "U4 lookup table=nf4 block=1x5:F16 store=packed_u8")
    assert q.codes().tolist() == [[15, 0, 7, 10, 12], [7, 7, 7, 7, 15]]
    words = bytes([0x0F, 0xA7, 0x0C, 0x77, 0x77, 0x0F])
    assert q.to_record() == words + np.array([1, 8], "<f2").tobytes()


def test_another_table_is_another_scheme():
    q = qn.quantize(X, scheme_of("nf4"))
    other = qn.QArray.from_record(q.to_record(), scheme_of("16 entries"), q.shape)
    assert other.scheme != q.scheme
    assert other != q
    assert np.array_equal(other.codes(), q.codes())
    assert not np.array_equal(other.dequantize(), q.dequantize())


def test_a_container_whose_table_is_not_its_schemes_is_refused():
    data = bytearray(qn.quantize(X, scheme_of("4 entries")).to_bytes())
    at = data.index(entries_of("4 entries").tobytes())
    data[at : at + 4] = np.float32(-2).tobytes()
    with pytest.raises(qn.DecodeError):
        qn.QArray.from_bytes(data)


@pytest.mark.parametrize("name", TABLES)
def test_schemes_are_text_and_back(name):
    scheme = scheme_of(name, "two")
    assert qn.Scheme.parse(str(scheme)) == scheme
    assert ("table=nf4" in str(scheme)) == name.startswith("nf4")


@pytest.mark.parametrize("name", TABLES)
def test_what_is_not_finite_becomes_the_entry_of_0_or_an_end(backend, name):
    x = np.array([np.nan, np.inf, -np.inf, 3.0], np.float32)
    made = quantize_on(backend, x, scheme_of(name), nonfinite="clip")
    entries = entries_of(name)
    assert made.codes[:3].tolist() == [nearest(0, entries), nearest(1e40, entries), 0]
    with pytest.raises(qn.DataError):
        qn.quantize(x, scheme_of(name))


def test_zeros_are_code_0_under_a_scale_of_0(backend):
    for name in TABLES:
        made = quantize_on(backend, np.zeros(5, np.float32), scheme_of(name))
        assert made.codes.tolist() == [0] * 5
        assert made.params.scales == 0
        found = dequantize_on(backend, made.words, scheme_of(name), (5,), made.params)
        assert np.array_equal(found, np.zeros(5))


def test_moves_carry_the_table():
    q = qn.quantize(X, scheme_of("16 entries", "block", store="packed_u32", pack_axis=1))
    moved = q[1:4, 16:32].T
    assert moved.scheme.table == q.scheme.table
    assert_same_bits(moved.dequantize(), q.dequantize()[1:4, 16:32].T)
    assert_same_bits(q.max(1), q.dequantize().max(1))
    with pytest.raises(InexactMoveError, match="it has no code for"):
        q.astype_scheme(qn.Scheme("U4", mode="lookup", table="nf4", block=16))


BAD = {
    "too few": ("U4", (0.0, 1.0), "a table of exactly 2\\*\\*bits entries"),
    "descending": ("U2", (3.0, 2.0, 1.0, 0.0), "is not a lookup table"),
    "NaN": ("U2", (0.0, 1.0, 2.0, float("nan")), "finite numbers in ascending order"),
    "beyond float32": ("U2", (0.0, 1.0, 2.0, 1e39), "finite numbers in ascending order"),
    "all zero": ("U2", (0.0,) * 4, "not all zero"),
    "no such name": ("U4", "nf5", "or a table name: nf4"),
    "none": ("U4", None, "lookup takes a table of codes, but none was provided"),
    "a minifloat": ("E2M1", "nf4", "use the integer value type of the same width"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_table_is_refused(name):
    value, table, message = BAD[name]
    with pytest.raises(qn.SchemeError, match=message):
        qn.Scheme(value, mode="lookup", table=table)
