"""Kernels of matrix products: rows of codes, or of decoded numbers, by vectors.

``dot_codes`` and ``dot_numbers`` are loops of ``simd_products.py``, stated here in plain NumPy for
where Numba is switched off. A result is one dot, or one chain of sums, in one fixed order: threads
share results, never the sum of one.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from qnumba.cpu import simd_products
from qnumba.cpu.jit import Kernel, compiled_as, kernel, shared_kernel
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
    steps = LANE_BITS // bits
    for row, (start, first) in enumerate(zip(starts[:rows], firsts[:rows], strict=True)):
        stored = words[start : start + chunks * CHUNK].view(np.uint32)
        lanes = stored ^ np.int32(flip).view(np.uint32)
        scale = _lane_scales(scales[first:], chunks, per_span, split) * share
        point = points[0] if not hop else np.repeat(points[first:], per_span * LANES)
        point = np.resize(point, lanes.size)[:, None]
        for v in range(vectors):
            place = vector + v
            if kind == WHOLE:
                sums = _whole_sums(lanes, bits, x, minus, place)
                scale_x = x_scales[place * lanes.size : (place + 1) * lanes.size]
                result = (sums * (scale * scale_x).astype(np.float64)).sum()
            else:
                codes = lanes[:, None] >> np.arange(0, LANE_BITS, bits, dtype=np.uint32)
                codes = (codes & (2**bits - 1)).astype(np.float32)
                if kind == TERNARY:
                    codes[codes == NEGATIVE] = -1
                    point = 0
                size = lanes.size * steps
                numbers = x[place * size : (place + 1) * size].reshape(chunks, steps, LANES)
                numbers = numbers.transpose(0, 2, 1).reshape(lanes.size, steps)
                values = (codes - point) * scale[:, None]
                result = (values.astype(np.float64) * numbers).sum()
            out[row * vectors + v] = result


def _lane_scales(scales, chunks, per_span, split):
    """Return the scale of every lane of a row."""
    lanes = chunks * LANES
    share = lanes if split == ROW else split * (per_span if split == LANES else 1)
    return np.repeat(scales[: -(-lanes // share)], share)[:lanes]


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
def codes_items(first, stop, jobs, share, words, scales, points, x, minus, x_scales, out):
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


@shared_kernel
def codes_shared(items, step, jobs, share, words, scales, points, x, minus, x_scales, out):
    """Multiply all rows in threads."""
    for chunk in prange((items + step - 1) // step):
        first = np.int64(chunk) * step
        stop = min(items, first + step)
        codes_items(first, stop, jobs, share, words, scales, points, x, minus, x_scales, out)


rows_of_codes = Kernel(codes_items, codes_shared)


# --- rows of decoded numbers, along which is summed


@kernel
def along_items(first, stop, panel, x, out, start):
    """Write the dots of rows of a panel and of vectors to ``out[start:]``."""
    cols = panel.shape[1]
    numbers, vectors = panel.reshape(panel.size), x.reshape(x.size)
    for row in range(first, stop):
        for v in range(x.shape[0]):
            out[start + row, v] = dot_numbers(numbers, row * cols, vectors, v * cols, cols)


@shared_kernel
def along_shared(rows, step, panel, x, out, start):
    """Do so for all rows in threads."""
    for chunk in prange((rows + step - 1) // step):
        first = np.int64(chunk) * step
        along_items(first, min(rows, first + step), panel, x, out, start)


along = Kernel(along_items, along_shared)


# --- rows of decoded numbers, across which is summed


@kernel
def across_items(first, stop, panel, x, out, start):
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


@shared_kernel
def across_shared(strips, step, panel, x, out, start):
    """Do so for all strips in threads."""
    for chunk in prange((strips + step - 1) // step):
        first = np.int64(chunk) * step
        across_items(first, min(strips, first + step), panel, x, out, start)


across = Kernel(across_items, across_shared)
