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
from qnumba.cpu.places import band_of
from qnumba.cpu.runs import (
    absmax,
    decode_float,
    decode_int,
    decode_table,
    encode_float,
    encode_int,
    encode_lookup,
    narrow,
    pack,
    prefetch,
    unpack,
    widen,
)

TILE = 2048  # values: 8 KiB of float32
INTEGER, MINIFLOAT, LOOKUP = 0, 1, 2


# --- scales beside values


@inner
def scales_beside(job, tile, dead, params, room):
    """Return the effective scales and zero points of a tile, and whether one stands by each value.

    A scale of 0 is replaced by ``dead``.
    """
    _, e, z, e_each, z_each, _ = room
    gather_scales(job, tile, dead, params, e, z)
    each = not job.has_runs
    if each and job.block_cols > 1:
        spread(job, tile, e, e_each)
        if job.is_affine:
            spread(job, tile, z, z_each)
        return e_each, z_each, each
    return e, z, each


@inner
def gather_scales(job, tile, dead, params, e, z):
    """Put the effective scales and zero points of a tile's runs in a row."""
    rows, count, group, row, column = tile
    global_scale, scales, points = params
    share = np.float32(global_scale)
    dead = np.float32(dead)
    first_run = column // job.block_cols
    per_row = (column + count - 1) // job.block_cols - first_run + 1
    for r in range(rows):
        first = band_of(job, group, row + r) * job.blocks + first_run
        for k in range(per_row):
            scale = share * scales[first + k]
            e[r * per_row + k] = dead if scale == 0 else scale
        if job.is_affine:
            for k in range(per_row):
                z[r * per_row + k] = points[first + k]


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


@inner
def runs_of(job, tile, each):
    """Return how many rows of how many values a tile has, and its first and other run lengths."""
    rows, count, _, _, column = tile
    if each:
        return 1, rows * count, rows * count, rows * count
    return rows, count, min(job.block_cols - column % job.block_cols, count), job.block_cols


# --- encode


@inner
def encode_tile(job, x, tile, looks, edges, params, words, room):
    """Encode a tile into words; return whether its values are finite, if it ``looks``."""
    rows, count, _, row, column = tile
    codes = room[5]
    place = row * job.cols + column
    source, start = source_of(x, place, rows * count, job.is_brain, room[0])
    e, z, each = scales_beside(job, tile, job.dead, params, room)
    out, to = codes, 0
    if job.is_direct:
        out, to = words, row * job.row_bytes + column
    is_finite = encode_runs(job, x, place, source, start, tile, looks, edges, e, z, each, out, to)
    if not job.is_direct:
        pack_rows(job, codes, tile, words)
    return is_finite


@inner
def encode_runs(job, x, place, source, start, tile, looks, edges, e, z, each, out, to):
    """Encode the runs of a tile, or, where scales stand beside ``each`` value, all as one."""
    kind, lo, hi, is_away, width = job.kind, job.lo, job.hi, job.is_away, job.width
    mantissa, smallest, top = job.mantissa, job.smallest, job.top
    ahead = place - start + job.ahead
    rows, count, length, step = runs_of(job, tile, each)
    first_length = length
    is_finite = True
    run = 0
    for _ in range(rows):
        stop = start + count
        length = first_length
        while start < stop:
            if kind == INTEGER:
                encode_int(source, start, length, e, z, run, each, lo, hi, is_away, out, to)
            elif kind == MINIFLOAT:
                encode_float(
                    source, start, length, e, run, each, mantissa, smallest, top, width, out, to
                )
            else:
                encode_lookup(source, start, length, e, run, each, edges, edges.size, out, to)
            if looks and not absmax(source, start, length) < np.inf:
                is_finite = False
                patch(job, source, start, length, e, run, each, out, to)
            if job.ahead > 0:
                prefetch(x, start + ahead, length)
            start += length
            to += length
            run += 1
            length = min(step, stop - start)
    return is_finite


@inner
def patch(job, source, start, count, e, first, each, out, to):
    """Give NaN and infinity their codes, where the arithmetic has not done so already."""
    if job.kind == INTEGER:
        return
    for k in range(count):
        value = source[start + k]
        is_dead = not np.isfinite(e[first + k if each else first])
        sign = job.sign_bit if np.signbit(value) else 0
        if np.isnan(value):
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
    for r in range(rows):
        line = (row + r) * job.row_bytes
        pack(codes, r * count, count, width, words, line + column * width // 8)
        if column + count == job.cols:
            for k in range((job.cols * width + 7) // 8, job.row_bytes):
                words[line + k] = 0


# --- decode


@inner
def decode_tile(job, words, tile, table, params, out, room):
    """Decode a tile of words into numbers."""
    rows, count, _, row, column = tile
    codes = room[5]
    e, z, each = scales_beside(job, tile, 0.0, params, room)
    source, start = words, row * job.row_bytes + column
    if not job.is_direct:
        for r in range(rows):
            line = (row + r) * job.row_bytes
            first = line + column * job.code_bits // 8
            unpack(words, first, count, job.code_bits, codes, r * count)
        source, start = codes, 0
    place = row * job.cols + column
    target, to = target_of(out, place, room[0])
    decode_runs(job, source, start, tile, table, e, z, each, target, to)
    finish(target, rows * count, job.is_brain, out, place)


@inner
def decode_runs(job, source, start, tile, table, e, z, each, out, to):
    """Decode the runs of a tile, or, where scales stand beside ``each`` value, all as one."""
    kind, mask, sign, width = job.kind, job.mask, job.number_sign, job.width
    shift, factor = job.half_shift, job.half_factor
    rows, count, length, step = runs_of(job, tile, each)
    first_length = length
    run = 0
    for _ in range(rows):
        stop = start + count
        length = first_length
        while start < stop:
            if kind == INTEGER:
                decode_int(source, start, length, e, z, run, each, mask, sign, out, to)
            elif kind == MINIFLOAT:
                decode_float(source, start, length, e, run, each, shift, factor, width, out, to)
            else:
                decode_table(source, start, length, e, run, each, table, out, to)
            start += length
            to += length
            run += 1
            length = min(step, stop - start)


# --- 16-bit floats pass through float32 values; others are used where they are


def source_of(x, start, count, is_brain, values):
    """Return the array and offset where a tile's values are, in their compute type."""
    if x.dtype == np.uint16:
        widen(x, start, count, is_brain, values)
        return values, 0
    return x, start


@overload(source_of)
def _source_of(x, start, count, is_brain, values):
    if x.dtype == types.uint16:

        def widened(x, start, count, is_brain, values):
            widen(x, start, count, is_brain, values)
            return values, 0

        return widened
    return lambda x, start, count, is_brain, values: (x, start)


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
