"""Damaged and forged bytes: DecodeError or an equal array, never anything else, never much memory.

``repaired`` sets the length and the checksum right after the damage, so that what is behind them
is reached. Everything is seeded: each run damages alike.
"""

from __future__ import annotations

import random
import re
import struct
import tracemalloc
import zlib
from functools import cache

import numpy as np
import pytest

from bytes_support import again, container, random_parts
from qnumba import reference
from qnumba.errors import DecodeError
from qnumba.scheme import PRESETS, Scheme
from qnumba.serialize import from_bytes, from_record, to_record
from support import dequantize_on

ROUNDS = 120_000  # mutations of containers; half as many of records
SUBJECTS = [
    (PRESETS["int8"], (3, 11)),
    (PRESETS["uint8"], (4, 5)),
    (PRESETS["int4"], (3, 33)),
    (PRESETS["nvfp4"], (2, 20)),
    (PRESETS["mxfp8"], (40,)),
    (PRESETS["nf4"], (5,)),
    (Scheme.parse("U4 affine block=2x4:BF16 store=packed_u8 pack_axis=1"), (3, 2, 5)),
    (Scheme.parse("Q2S block=3:F16 store=native"), (2, 7)),
    (Scheme.parse("U2 lookup table=-1.5,0.0,0.5,2.0 tensor=UE4M3"), (9,)),
    (Scheme.parse("E5M2 block=1 store=packed_u32"), ()),
    (Scheme.parse("Q8F block=4:F16 tensor=F32"), (0, 5)),
]
# Numbers that break arithmetic, at the places in the header where a number is.
NUMBERS = [0, 1, 2, 3, 7, 8, 63, 64, 65, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31]
NUMBERS += [2**32 - 1, 2**32, 2**60 - 1, 2**60, 2**62, 2**63 - 1, 2**63, 2**64 - 64, 2**64 - 1]
FIELDS = [(8, 4), (16, 8), *[(at, 2) for at in range(24, 32, 2)], (32, 4), (36, 4)]
FIELDS += [(at, 8) for at in range(40, 144, 8)]
WORDS = [b"Q8S", b"U4", b"E2M1", b"affine", b"lookup", b"block=", b"1x", b":F16", b"tensor=F32"]
WORDS += [b"store=packed_u32", b"pack_axis=1", b"table=nf4", b"table=1,2", b" ", b"-", b"\xff"]
WORDS += [b"float64", b"int128", b"9" * 30, "\u00b2\u0663".encode(), b"\0", b"nvfp4", b"=", b"x"]


@cache
def whole(subject, seed=0):
    """Return an undamaged container of one of the subjects."""
    return container(*SUBJECTS[subject], seed)


def repaired(data):
    """Return the bytes with the length and the checksum that belong to them."""
    if len(data) < 24:
        return bytes(data)
    data = bytearray(data)
    struct.pack_into("<Q", data, 16, len(data))
    struct.pack_into("<I", data, 12, zlib.crc32(data[16:], zlib.crc32(data[:12])))
    return bytes(data)


# Ways to damage: each takes a bytearray and a random.Random, and changes the bytes in place.


def flip_bits(data, chance):
    for _ in range(chance.choice([1, 1, 2, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def flip_bits_of_a_section(data, chance):
    table = struct.unpack_from("<10Q", data.ljust(120), 40)
    places = [place for place in zip(table[::2], table[1::2], strict=True) if place[1]]
    offset, size = chance.choice(places or [(0, len(data))])
    if offset + size <= len(data):
        for _ in range(chance.choice([1, 1, 2, 8])):
            data[offset + chance.randrange(size)] ^= 1 << chance.randrange(8)


def set_bytes(data, chance):
    for _ in range(chance.choice([1, 2, 4])):
        data[chance.randrange(len(data))] = chance.choice([0, 1, 127, 128, 255])


def swap_bytes(data, chance):
    one, other = chance.randrange(len(data)), chance.randrange(len(data))
    data[one], data[other] = data[other], data[one]


def cut(data, chance):
    del data[chance.randrange(len(data)) :]


def extend(data, chance):
    data += chance.choice([b"\0", b"\xff", bytes(64), data[-chance.randrange(1, 65) :]])


def remove_inside(data, chance):
    start = chance.randrange(len(data))
    del data[start : start + chance.choice([1, 8, 64])]


def insert_inside(data, chance):
    start = chance.randrange(len(data))
    data[start:start] = chance.choice([b"\0", bytes(8), bytes(64), b"\xff" * 8])


def move_inside(data, chance):
    size = chance.choice([1, 4, 8, 64])
    one, other = chance.randrange(len(data)), chance.randrange(len(data))
    data[one : one + size] = data[other : other + size]


def splice(data, chance):
    donor = whole(chance.randrange(len(SUBJECTS)), chance.randrange(3))
    start = chance.randrange(len(data))
    data[start:] = donor[start:] if chance.random() < 0.5 else donor[chance.randrange(len(donor)) :]


def set_field(data, chance):
    for _ in range(chance.choice([1, 1, 2])):
        at, size = chance.choice(FIELDS)
        number = chance.choice(NUMBERS) % 2 ** (8 * size)
        if chance.random() < 0.4 and at + size <= len(data):
            near = int.from_bytes(data[at : at + size], "little") + chance.choice([-64, -1, 1, 64])
            number = near % 2 ** (8 * size)
        data[at : at + size] = number.to_bytes(size, "little")


def edit_texts(data, chance):
    """Put words into the texts, the lengths and all that follows kept consistent or not."""
    rank = min(int.from_bytes(data[32:36], "little"), 8)
    start = 120 + 8 * rank
    which = chance.randrange(2)
    size = int.from_bytes(data[24 + 2 * which : 26 + 2 * which], "little")
    start += which * int.from_bytes(data[24:26], "little")
    at, dropped = start + chance.randrange(size + 1), chance.choice([0, 0, 1, 3])
    word = chance.choice(WORDS)
    data[at : at + dropped] = word
    if chance.random() < 0.7:
        size = (size + len(word) - dropped) % 2**16
        struct.pack_into("<H", data, 24 + 2 * which, size)
        padding = len(word) - dropped  # the zeros behind the texts take up the difference
        end = start + 64
        if padding > 0:
            del data[end : end + padding]
        else:
            data[end:end] = bytes(-padding)


def rename(data, chance):
    """Turn a name into another of the same length: the sizes may still be right."""
    names = [(b"Q8S", b"Q8F"), (b"Q4S", b"Q4F"), (b"Q2S", b"Q2F"), (b"E4M3", b"E5M2")]
    names += [(b"UE8M0", b"UE4M3"), (b"float32", b"float64"), (b"native", b"packed")]
    one, other = chance.sample(chance.choice(names), 2)
    data[:] = data.replace(one, other)


DAMAGES = [flip_bits, flip_bits_of_a_section, set_bytes, swap_bytes, cut, extend, remove_inside]
DAMAGES += [insert_inside, move_inside, splice, set_field, edit_texts, rename]
RECORD_DAMAGES = [flip_bits, set_bytes, swap_bytes, cut, extend, remove_inside, move_inside]


def damaged(data, chance, damages):
    data = bytearray(data)
    for damage in chance.choices(damages, k=chance.choice([1, 1, 1, 2, 3])):
        if len(data) > 26:
            damage(data, chance)
    return data


def kind(error):
    """Return a refusal without its numbers and quotations."""
    return re.sub(r"\(.*?\)|b?'.*?'|\d\S*", "#", str(error))[:28]


def test_damaged_containers():
    """A changed container is refused; a repaired one is refused or is read as what it says."""
    chance = random.Random(20_240_229)
    subjects = range(len(SUBJECTS))
    undamaged = {whole(subject, seed) for subject in subjects for seed in range(3)}
    refusals, read, changed = {}, 0, 0
    for number in range(ROUNDS):
        original = whole(number % len(SUBJECTS))
        repair = chance.random() < 0.7
        data = damaged(original, chance, DAMAGES)
        data = repaired(data) if repair else bytes(data)
        try:
            contents = from_bytes(data)
        except DecodeError as error:
            refusals[kind(error)] = refusals.get(kind(error), 0) + 1
            assert data != original
            continue
        assert again(contents) == data, "read, and written otherwise"
        assert repair or data in undamaged, "a change without a trace"
        read += 1
        if data != original and contents.words.size:
            changed += 1
            with np.errstate(all="ignore"):
                dequantize_on(reference, contents.words, *contents[:2], contents.params)
    assert read > changed > ROUNDS // 40, "the damage is so great that nothing is read"
    assert len(refusals) > 20, "the checks behind the checksum were not reached"


def test_damaged_records():
    chance = random.Random(3)
    refused = read = 0
    subjects = [random_parts(scheme, shape) for scheme, shape in SUBJECTS]
    records = [(parts[0], to_record(*parts)) for parts in subjects]
    records = [(layout, record) for layout, record in records if record]
    for number in range(ROUNDS // 2):
        layout, original = records[number % len(records)]
        data = bytearray(original)
        for damage in chance.choices(RECORD_DAMAGES, k=chance.choice([1, 1, 2])):
            damage(data or bytearray(1), chance)
        try:
            words, params = from_record(bytes(data), layout)
        except DecodeError:
            refused += 1
            assert data != original
            continue
        assert to_record(layout, words, params) == data
        read += 1
        with np.errstate(all="ignore"):
            dequantize_on(reference, words, layout.scheme, layout.shape, params)
    assert min(refused, read) > ROUNDS // 8


def forged(scheme=b"Q8S", shape=(2, 3), dtype=b"float32", places=None, **fields):
    """Return a container with the right length and checksum and anything else in it."""
    start = -(-(120 + 8 * len(shape) + len(scheme) + len(dtype)) // 64) * 64
    places = places or [(start, 6), (0, 0), (start + 64, 4), (0, 0), (0, 0)]
    header = {"magic": b"\x89QNB\r\n\x1a\n", "version": 1, "checksum": 0, "length": 0}
    header |= {"scheme": len(scheme), "dtype": len(dtype), "writer": 0, "options": 0}
    header |= {"rank": len(shape), "zero": 0} | fields
    start_of_data = struct.pack("<8s2IQ4H2I10Q", *header.values(), *sum(places, ()))
    start_of_data += struct.pack(f"<{len(shape)}Q", *shape) + scheme + dtype
    return repaired(start_of_data.ljust(start, b"\0") + bytes(64) + b"\0\0\x80\x3f")


TOP = 2**64 - 1
PLACE = (192, 6)
SCALE = (256, 4)
NONE = (0, 0)
HOSTILE = {
    "a shape beyond any memory": ({"shape": (2**40, 3)}, "words .* at"),
    "a shape beyond 2**64": ({"shape": (2**63, 2**63)}, "no array can have the shape"),
    "a product that wraps to 6": ({"shape": (2**63, 2, 6)}, "no array can have the shape"),
    "minus one": ({"shape": (TOP, 6)}, "no array can have the shape"),
    "nothing times too much": ({"shape": (0, TOP)}, "no array can have the shape"),
    "nothing times much": ({"shape": (0, 2**59)}, "words .* at"),
    "blocks beyond any memory": (
        {"scheme": b"Q8S block=1:F32", "shape": (2**50,)},
        "words .* at",
    ),
    "too many axes": ({"shape": (1,) * 65}, "claims 65 axes"),
    "as many axes as fit in 32 bits": ({"rank": 2**32 - 1}, "claims 4294967295 axes"),
    "more axes than bytes": ({"rank": 40}, "claims 40 axes"),
    "texts behind the end": ({"options": 2**16 - 1}, "claims 2 axes and texts of"),
    "another version": ({"version": 2}, "format version is 2"),
    "version 0": ({"version": 0}, "format version is 0"),
    "another magic": ({"magic": b"\x93NUMPY\1\0"}, "start with"),
    "a reserved field": ({"zero": 1}, "must be 0 is 1"),
    "words behind the end": ({"places": [(2**63, 6), NONE, SCALE, NONE, NONE]}, "words .* at"),
    "an end that wraps": ({"places": [(TOP, 6), NONE, SCALE, NONE, NONE]}, "words .* at"),
    "words without end": ({"places": [(192, TOP), NONE, SCALE, NONE, NONE]}, "words .* at"),
    "sections that overlap": ({"places": [PLACE, NONE, (192, 4), NONE, NONE]}, "scales .* at"),
    "words in the header": ({"places": [(0, 6), NONE, SCALE, NONE, NONE]}, "words .* at"),
    "a section too many": ({"places": [PLACE, NONE, SCALE, SCALE, NONE]}, "global scale .* at"),
    "a section too few": ({"places": [PLACE, NONE, NONE, NONE, NONE]}, "scales .* at"),
    "no scheme": ({"scheme": b""}, "scheme text is empty"),
    "a preset's name": ({"scheme": b"int8"}, "'int8' is not written as 'Q8S'"),
    "two spaces": ({"scheme": b"Q8S  block=1:F32"}, "is not written as"),
    "Arabic digits": ({"scheme": "Q8S block=\u0663:F32".encode()}, "is not written as"),
    "no UTF-8": ({"scheme": b"Q8S\xff"}, "not UTF-8"),
    "a surrogate": ({"scheme": b"Q8S\xed\xa0\x80"}, "not UTF-8"),
    "a scheme that is none": ({"scheme": b"Q8S block=0:F32"}, "describes no array"),
    "a scheme that does not fit": ({"scheme": b"Q8S block=2x2x2:F32"}, "describes no array"),
    "a number of many digits": ({"scheme": b"Q8S block=" + b"9" * 60_000}, "describes no array"),
    "a dtype that is none": ({"dtype": b"object"}, "describes no array"),
    "a scheme without end": ({"scheme": b"Q8S " * 16_000}, "describes no array"),
    "a word without end": ({"scheme": b"nvfp" * 16_000}, "describes no array"),
    "a table without end": ({"scheme": b"U8 lookup table=" + b"1," * 30_000}, "describes no array"),
    "many wrong names": ({"scheme": b"Q8S tensor=" + b"F16" * 20_000}, "describes no array"),
}


@pytest.mark.parametrize(("fields", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_containers(fields, message):
    data = forged(**fields)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=message) as caught:
            from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 40 * len(data) + 2**17
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 600


def test_what_is_forged_is_well_made_otherwise():
    contents = from_bytes(forged())
    assert (contents.words.shape, contents.params.scales) == ((2, 3), 1)


def test_every_flipped_bit_and_every_length():
    for subject in range(len(SUBJECTS)):
        data = whole(subject)
        for bit in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(DecodeError):
                from_bytes(flipped)
        for size in range(len(data)):
            with pytest.raises(DecodeError):
                from_bytes(data[:size])
        for more in (b"\0", bytes(64), data):
            with pytest.raises(DecodeError, match=f"expected {len(data)} bytes, got"):
                from_bytes(data + more)
