"""Kernels of matrix products: rows of codes, or of decoded numbers, by vectors.

``dot_codes`` and ``dot_numbers`` are loops of ``simd_products.py``, stated here in plain NumPy for
where Numba is switched off. A result is one dot, or one chain of sums, in one fixed order: threads
share results, never the sum of one.
"""

from __future__ import annotations

import numpy as np

from qnumba.cpu import simd_products
from qnumba.cpu.jit import compiled_as, kernel
from qnumba.cpu.simd_dots import CHUNK, LANES, ROW
from qnumba.cpu.simd_products import TERNARY, WHOLE

STRIP = 1024  # columns that are summed down at a time
BYTE, LANE_BITS, NEGATIVE = 8, 32, 3  # the last is the ternary code of -1


@compiled_as(simd_products.dot_codes)
def dot_codes(
    tile, chunks, per_span, split, hop, flip, share, words, starts, firsts, scales, points,
    x, minus, x_scales, vector, out,
):  # fmt: skip
    """Write the dots of a tile of rows and vectors to ``out``, a row after the other.

    Row k starts at byte ``starts[k]``, its scales at ``firsts[k]``. ``split`` lanes of 32 bits
    share a scale; all 16, and then ``per_span`` chunks do; or the whole row does (``ROW``). Codes
    are unsigned once ``flip`` has turned their sign bits; ``points`` are subtracted from them, or,
    from integers, with ``minus``. Vectors and what is beside them are laid out by ``vectors.py``.
    """
    kind, bits, rows, vectors = tile.shape
    for row, (start, first) in enumerate(zip(starts[:rows], firsts[:rows], strict=True)):
        stored = words[start : start + chunks * CHUNK].view(np.uint32)
        lanes = stored ^ np.int32(flip).view(np.uint32)
        scale = _per_lane(scales[first:], chunks, per_span, split) * share
        if kind != WHOLE:
            values = _codes(lanes, bits, is_ternary=kind == TERNARY)
            if kind != TERNARY:
                values -= _per_lane(points[first * hop :], chunks, per_span, split if hop else ROW)
            values *= scale
        for v in range(vectors):
            place = vector + v
            if kind == WHOLE:
                beside = x_scales[place * lanes.size : (place + 1) * lanes.size]
                terms = _whole_sums(lanes, bits, x, minus, place) * (scale * beside)
            else:
                numbers = x[place * values.size : (place + 1) * values.size]
                numbers = numbers.reshape(chunks, -1, LANES).transpose(1, 0, 2)
                terms = values.astype(np.float64) * numbers.reshape(values.shape)
            out[row * vectors + v] = terms.sum(dtype=np.float64)


def _codes(lanes, bits, *, is_ternary):
    """Return codes as float32, a row for each step and a column for each lane."""
    shifts = np.arange(0, LANE_BITS, bits, dtype=np.uint32)[:, None]
    codes = (lanes >> shifts & (2**bits - 1)).astype(np.float32)
    return np.where(codes == NEGATIVE, np.float32(-1), codes) if is_ternary else codes


def _per_lane(numbers, chunks, per_span, split):
    """Return for every lane of a row the number that belongs to its block."""
    lanes = chunks * LANES
    share = lanes if split == ROW else split * (per_span if split == LANES else 1)
    return np.repeat(numbers[: -(-lanes // share)], share)[:lanes]


def _whole_sums(lanes, bits, x, minus, place):
    """Return the dot of every lane of a row with int8 codes, as integers."""
    pieces = BYTE // bits
    size = lanes.size * LANE_BITS // bits
    numbers = x[place * size : (place + 1) * size].reshape(-1, pieces, LANES, BYTE // 2)
    shifts = np.arange(0, BYTE, bits, dtype=np.uint8)[:, None, None]
    codes = lanes.view(np.uint8).reshape(-1, 1, LANES, BYTE // 2) >> shifts & (2**bits - 1)
    sums = (codes.astype(np.int64) * numbers).sum((1, 3)).reshape(-1)
    return sums + minus[place * lanes.size : (place + 1) * lanes.size]


@compiled_as(simd_products.dot_numbers)
def dot_numbers(a, start, x, x_start, count):
    """Return the sum of ``a[start + k] * x[x_start + k]``."""
    with np.errstate(all="ignore"):
        return a[start : start + count] @ x[x_start : x_start + count]


# --- rows of codes


@kernel
def rows_of_codes(first, stop, jobs, share, words, scales, points, x, minus, x_scales, out):
    """Multiply some items of rows: ``out[r, v]`` is row r by vector v."""
    job = jobs[0]
    rows, vectors = job.tile.shape[2], job.tile.shape[3]
    places = np.empty((2, rows), np.int64)
    starts, firsts = places[0], places[1]
    results = np.empty(rows * vectors, np.float32)
    factor = np.float32(share)
    for item in range(first, stop):
        end = min(job.rows, (item + 1) * job.item_rows)
        for vector in range(0, out.shape[1], vectors):
            for row in range(item * job.item_rows, end, rows):
                for k in range(rows):
                    each = min(row + k, end - 1)  # the last row again, to fill a tile
                    starts[k] = each * job.row_bytes
                    firsts[k] = each // job.block_rows * job.blocks
                dot_codes(
                    job.tile,
                    job.chunks,
                    job.per_span,
                    job.split,
                    job.hop,
                    np.int32(job.flip),
                    factor,
                    words,
                    starts,
                    firsts,
                    scales,
                    points,
                    x,
                    minus,
                    x_scales,
                    vector,
                    results,
                )
                for k in range(min(rows, end - row)):
                    for v in range(vectors):
                        out[row + k, vector + v] = results[k * vectors + v]


# --- rows of decoded numbers, along which is summed


@kernel
def along(first, stop, panel, x, out, start):
    """Write the dots of rows of a panel and of vectors to ``out[start:]``."""
    cols = panel.shape[1]
    numbers, vectors = panel.reshape(panel.size), x.reshape(x.size)
    for row in range(first, stop):
        for v in range(x.shape[0]):
            out[start + row, v] = dot_numbers(numbers, row * cols, vectors, v * cols, cols)


# --- rows of decoded numbers, across which is summed


@kernel
def across(first, stop, panel, x, out, start):
    """Add ``x[:, start:] @ panel`` to some strips of columns of ``out``, row by row."""
    rows = panel.shape[0]
    for strip in range(first, stop):
        left, right = strip * STRIP, min(panel.shape[1], (strip + 1) * STRIP)
        for v in range(x.shape[0]):
            sums = out[v, left:right]
            for row in range(rows):
                factor = x[v, start + row]
                numbers = panel[row, left:right]
                for k in range(numbers.size):
                    sums[k] += factor * numbers[k]
