"""Encode and decode one tile: a piece of a row that stays in the first cache, or short rows.

``job`` is a row of numbers: where rows, blocks and bytes are, and what the formats are (jobs.py).
A tile is ``rows`` rows of ``count`` values from column ``column`` on, the first of them row ``row``
of the array. There are several only where they are whole and follow each other in memory.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from qnumba.cpu.jit import inner
from qnumba.cpu.places import (
    INTEGER,
    LOOKUP,
    MINIFLOAT,
    VECTOR,
    band_of,
    has_points,
    kind_of,
    next_runs,
)
from qnumba.cpu.runs import (
    absmax,
    decode_float,
    decode_int,
    decode_table,
    divide,
    effective,
    encode_float,
    encode_int,
    encode_lookup,
    inverses,
    narrow,
    pack,
    unpack,
    widen,
)

# Below this, and an end that jobs have for inverses, ratios come out right without a division
# (Lanes.quotient): inverses are normal numbers.
MOST_SCALE = 2.0**100

# --- scales beside values


@inner
def scales_beside(job, tile, dead, params, room):
    """Return the effective scales and zero points of a tile, whether one stands by each, how many.

    A scale of 0 is replaced by ``dead``.
    """
    _, e, z, e_each, z_each = room[:5]
    count = gather_scales(job, tile, dead, params, e, z)
    each = not job.has_runs
    if each and job.block_cols > 1:
        spread(job, tile, e, e_each)
        if has_points(job):
            spread(job, tile, z, z_each)
        return e_each, z_each, each, tile[0] * tile[1]
    return e, z, each, count


@inner
def gather_scales(job, tile, dead, params, e, z):
    """Put the effective scales and zero points of a tile's runs in a row; return how many."""
    rows, count, group, row, column = tile
    global_scale, scales, points = params
    share, dead = np.float32(global_scale), np.float32(dead)
    first_run = column // job.block_cols
    per_row = (column + count - 1) // job.block_cols - first_run + 1
    if job.has_neighbours:  # the scales of the rows follow each other
        rows, per_row = 1, rows * per_row
    for r in range(rows):
        first = band_of(job, group, row + r) * job.blocks + first_run
        effective(scales, first, per_row, share, dead, e, r * per_row)
        if has_points(job):
            for k in range(per_row):
                z[r * per_row + k] = points[first + k]
    return rows * per_row


@inner
def spread(job, tile, numbers, out):
    """Repeat the number of each run once for every value of the run."""
    rows, count, _, _, column = tile
    step = job.block_cols
    place = run = 0
    for _ in range(rows):
        stop = place + count
        length = min(step - column % step, count)
        while place < stop:
            number = numbers[run]
            for k in range(place, place + length):
                out[k] = number
            place += length
            run += 1
            length = min(step, stop - place)


# --- encode


@inner
def encode_tile(job, x, tile, is_widened, edges, params, words, room):
    """Encode a tile into words; return whether its values are finite."""
    rows, count, _, row, column = tile
    codes = room[5]
    place = row * job.cols + column
    source, start = source_of(job, x, place, rows * count, room[0], is_widened=is_widened)
    scales = scales_beside(job, tile, job.dead, params, room)
    out, to = codes, 0
    if job.is_direct:
        out, to = words, row * job.row_bytes + column
    is_finite = encode_runs(job, source, start, tile, edges, scales, out, to, room)
    if not job.is_direct:
        pack_rows(job, codes, tile, words)
    return is_finite


@inner
def encode_runs(job, source, start, tile, edges, scales, out, to, room):
    """Encode the runs of a tile, or, where scales stand beside ``each`` value, all as one."""
    size = tile[0] * tile[1]
    e, z, each, count = scales
    y = room[7]
    largest, largest_inverse = inverses(e, count, y)
    is_usual = largest < MOST_SCALE and largest_inverse < job.inverse_max
    place = run = 0
    is_finite = True
    while place < size:
        runs, length = (1, size) if each else next_runs(job, tile, place, are_joined=True)
        runs = 1 if length % VECTOR > 0 else runs
        at, goal = start + place, to + place
        are_finite = encode_some(
            job, source, at, runs, length, edges, e, y, z, run, each, out, goal
        )
        if not (is_usual and are_finite):
            divide_and_encode(
                job, source, at, runs, length, edges, e, z, run, each, out, goal, room
            )
            if not absmax(source, at, runs * length) < np.inf:
                is_finite = False
                patch(job, source, at, runs, length, e, z, run, each, out, goal)
        place += runs * length
        run += runs
    return is_finite


def divide_and_encode(job, x, start, runs, length, edges, e, z, first, each, out, to, room):
    """Encode runs whose ratios cannot be had from the inverses of scales."""
    encoder = divide_first if x.dtype == np.float32 else nothing_more
    encoder(job, x, start, runs, length, edges, e, z, first, each, out, to, room)


@overload(divide_and_encode)
def _divide_and_encode(job, x, start, runs, length, edges, e, z, first, each, out, to, room):
    return divide_first if x.dtype == types.float32 else nothing_more


def divide_first(job, x, start, runs, length, edges, e, z, first, each, out, to, room):
    """Divide, then encode the ratios with scales of 1."""
    ratios, ones = room[8], room[9]
    divide(x, start, runs, length, e, first, each, ratios)
    ones[: first + (length if each else runs)] = 1
    encode_some(job, ratios, 0, runs, length, edges, ones, ones, z, first, each, out, to)


def nothing_more(job, x, start, runs, length, edges, e, z, first, each, out, to, room):
    """Leave runs of float64 as they are: the encoders divide those."""


def encode_some(job, x, start, runs, length, edges, e, y, z, first, each, out, to):
    """Encode runs with the encoder of the job's kind of codes; return if all ratios are finite."""
    return ENCODERS[job.kind](job, x, start, runs, length, edges, e, y, z, first, each, out, to)


@overload(encode_some)
def _encode_some(job, x, start, runs, length, edges, e, y, z, first, each, out, to):
    return ENCODERS[kind_of(job)]


def encode_integers(job, x, start, runs, length, edges, e, y, z, first, each, out, to):
    """Encode integers about 0."""
    lo, hi, is_away, ahead = job.lo, job.hi, job.is_away, job.ahead
    return encode_int(
        x, start, runs, length, e, y, None, first, each, ahead, lo, hi, is_away, out, to
    )


def encode_affine(job, x, start, runs, length, edges, e, y, z, first, each, out, to):
    """Encode integers about zero points."""
    lo, hi, is_away, ahead = job.lo, job.hi, job.is_away, job.ahead
    return encode_int(x, start, runs, length, e, y, z, first, each, ahead, lo, hi, is_away, out, to)


def encode_minifloats(job, x, start, runs, length, edges, e, y, z, first, each, out, to):
    """Encode minifloats."""
    mantissa, smallest, top, width = job.mantissa, job.smallest, job.top, job.width
    ahead = job.ahead
    return encode_float(
        x, start, runs, length, e, y, first, each, ahead, mantissa, smallest, top, width, out, to
    )


def encode_indices(job, x, start, runs, length, edges, e, y, z, first, each, out, to):
    """Encode indices into a table."""
    return encode_lookup(x, start, runs, length, e, y, first, each, job.ahead, edges, out, to)


ENCODERS = (encode_integers, encode_affine, encode_minifloats, encode_indices)


@inner
def patch(job, source, start, runs, length, e, z, first, each, out, to):
    """Give NaN and infinity their codes, where dividing and encoding has not done so already."""
    for k in range(runs * length):
        value, beside = source[start + k], first + (k if each else k // length)
        is_dead = not 0 < e[beside] < np.inf
        sign = job.sign_bit if np.signbit(value) else 0
        if job.kind == INTEGER or has_points(job):
            if np.isnan(value) or (np.isinf(value) and is_dead):
                out[to + k] = z[beside] if has_points(job) else 0
        elif np.isnan(value):
            out[to + k] = (
                0 if is_dead and job.kind == LOOKUP else job.nan_code | sign & job.nan_sign
            )
        elif np.isinf(value) and job.kind == MINIFLOAT:
            if job.infinity_code > 0:
                out[to + k] = job.infinity_code | sign
            elif is_dead:
                out[to + k] = sign


@inner
def pack_rows(job, codes, tile, words):
    """Pack the codes of a tile; the last words of a row are filled up with zeros."""
    rows, count, _, row, column = tile
    width = job.code_bits
    if job.row_bytes * 8 == job.cols * width:  # the bytes of the rows follow each other
        rows, count = 1, rows * count
    for r in range(rows):
        line = (row + r) * job.row_bytes
        pack(codes, r * count, count, width, words, line + column * width // 8)
        if column + count >= job.cols:
            for k in range((job.cols * width + 7) // 8, job.row_bytes):
                words[line + k] = 0


# --- decode


@inner
def decode_tile(job, words, tile, table, params, out, room):
    """Decode a tile of words into numbers."""
    rows, count, _, row, column = tile
    codes = room[5]
    e, z, each, _ = scales_beside(job, tile, 0.0, params, room)
    source, start = words, row * job.row_bytes + column
    if not job.is_direct:
        unpack_rows(job, words, tile, codes)
        source, start = codes, 0
    place = row * job.cols + column
    target, to = target_of(out, place, room[0])
    decode_runs(job, source, start, tile, table, e, z, each, target, to)
    finish(target, rows * count, job.is_brain, out, place)


@inner
def unpack_rows(job, words, tile, codes):
    """Unpack the codes of a tile."""
    rows, count, _, row, column = tile
    width = job.code_bits
    if job.row_bytes * 8 == job.cols * width:  # the bytes of the rows follow each other
        rows, count = 1, rows * count
    for r in range(rows):
        first = (row + r) * job.row_bytes + column * width // 8
        unpack(words, first, count, width, codes, r * count)


@inner
def decode_runs(job, source, start, tile, table, e, z, each, out, to):
    """Decode the runs of a tile, or, where scales stand beside ``each`` value, all as one."""
    size = tile[0] * tile[1]
    place = run = 0
    while place < size:
        runs, length = (1, size) if each else next_runs(job, tile, place, are_joined=True)
        runs = 1 if length % VECTOR > 0 else runs
        decode_some(
            job, source, start + place, runs, length, table, e, z, run, each, out, to + place
        )
        place += runs * length
        run += runs


def decode_some(job, codes, start, runs, length, table, e, z, first, each, out, to):
    """Decode runs with the decoder of the job's kind of codes."""
    DECODERS[job.kind](job, codes, start, runs, length, table, e, z, first, each, out, to)


@overload(decode_some)
def _decode_some(job, codes, start, runs, length, table, e, z, first, each, out, to):
    return DECODERS[kind_of(job)]


def decode_integers(job, codes, start, runs, length, table, e, z, first, each, out, to):
    """Decode integers about 0."""
    mask, sign = job.mask, job.number_sign
    decode_int(codes, start, runs, length, e, None, first, each, mask, sign, out, to)


def decode_affine(job, codes, start, runs, length, table, e, z, first, each, out, to):
    """Decode integers about zero points."""
    mask, sign = job.mask, job.number_sign
    decode_int(codes, start, runs, length, e, z, first, each, mask, sign, out, to)


def decode_minifloats(job, codes, start, runs, length, table, e, z, first, each, out, to):
    """Decode minifloats."""
    shift, factor, width = job.half_shift, job.half_factor, job.width
    decode_float(codes, start, runs, length, e, first, each, shift, factor, width, out, to)


def decode_indices(job, codes, start, runs, length, table, e, z, first, each, out, to):
    """Decode indices into a table."""
    decode_table(codes, start, runs, length, e, first, each, table, out, to)


DECODERS = (decode_integers, decode_affine, decode_minifloats, decode_indices)


# --- 16-bit floats pass through float32 values; others are used where they are


def source_of(job, x, start, count, values, is_widened):
    """Return the array and offset where a tile's values are, in their compute type."""
    is_half = x.dtype == np.uint16
    return (widened if is_half else where_it_is)(job, x, start, count, values, is_widened)


@overload(source_of)
def _source_of(job, x, start, count, values, is_widened):
    return widened if x.dtype == types.uint16 else where_it_is


def widened(job, x, start, count, values, is_widened):
    """Put 16-bit floats in the room for values, unless they are there."""
    if not is_widened:
        widen(x, start, count, job.ahead, job.is_brain, values)
    return values, 0


def where_it_is(job, x, start, count, values, is_widened):
    """Take values from the array itself."""
    return x, start


def target_of(out, to, values):
    """Return the array and offset that a tile's numbers are written to."""
    return (values, 0) if out.dtype == np.uint16 else (out, to)


@overload(target_of)
def _target_of(out, to, values):
    if out.dtype == types.uint16:
        return lambda out, to, values: (values, 0)
    return lambda out, to, values: (out, to)


def finish(values, count, is_brain, out, to):
    """Round a tile's numbers to 16-bit floats, if that is what is asked for."""
    if out.dtype == np.uint16:
        narrow(values, count, is_brain, out, to)


@overload(finish)
def _finish(values, count, is_brain, out, to):
    if out.dtype == types.uint16:
        return lambda values, count, is_brain, out, to: narrow(  # noqa: PLW0108 - names are matched
            values, count, is_brain, out, to
        )
    return lambda values, count, is_brain, out, to: None
