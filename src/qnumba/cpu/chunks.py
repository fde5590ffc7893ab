"""Kernels of ranges over large blocks: each block in chunks, so that threads share one block.

A chunk is 65536 values of a block in row-major order. The order in which a mean adds them is part
of the contract: see docs/numerics.md.
"""

from __future__ import annotations

import numpy as np

from qnumba.cpu.jit import inner, kernel
from qnumba.cpu.places import has_points, row_of, rows_of
from qnumba.cpu.ranges import finite_extremes
from qnumba.cpu.room import TILE
from qnumba.cpu.runs import absmax, extremes
from qnumba.cpu.scales import store_scales
from qnumba.cpu.tiles import source_of

CHUNK, LANES = 65536, 256
LOW, HIGH = 0, 1  # columns of partial results; of a mean: how many values, and their sum


@kernel
def measure(first, stop, x, jobs, partial, flags):
    """Measure some chunks. ``partial`` is float64 of shape (blocks * chunks per block, 2)."""
    job = jobs[0]
    values = np.empty(TILE, np.float32)
    sums = np.empty(LANES, np.float64)
    for chunk in range(first, stop):
        block, start = chunk // job.chunks, chunk % job.chunks * CHUNK
        if not measure_chunk(job, x, block, start, values, sums, partial[chunk]):
            flags[0] = 1


@kernel
def fold(jobs, partial, low, high, scales, points):
    """Fold the chunks of every block into its range, and store the scales if the job says so."""
    job = jobs[0]
    fold_chunks(job, partial, low, high)
    if job.stores:
        raw = np.empty(min(TILE, scales.size), np.float64)
        store_scales(job, 1.0, low, high, 0, scales.size, scales, points, raw)


@inner
def measure_chunk(job, x, block, start, values, sums, found):
    """Measure the values of a block from number ``start`` on; return whether all are finite."""
    band, column = block // job.blocks, block % job.blocks * job.block_cols
    width = min(job.block_cols, job.cols - column)
    size = rows_of(job, band) * width
    if job.axes <= 1 and width == job.cols:
        width = size  # the rows follow each other in memory
    stop = min(size, start + CHUNK)
    lanes = LANES  # of which only those that hold a value are added
    while lanes > 1 and lanes // 2 >= stop - start:
        lanes //= 2
    for lane in range(lanes):
        sums[lane] = 0.0
    found[LOW] = found[HIGH] = 0.0
    is_finite = True
    position = start
    while position < stop:
        count = min(TILE, stop - position, width - position % width)
        offset = row_of(job, band, position // width) * job.cols + column + position % width
        source, offset = source_of(job, x, offset, count, values, is_widened=False)
        if job.is_mean:
            bad = add_to_lanes(source, offset, count, position - start, sums)
            found[LOW] += count - bad
            is_finite &= bad == 0
        else:
            is_finite &= widen_range(job, source, offset, count, found)
        position += count
    if job.is_mean:
        found[HIGH] = add_lanes(sums, lanes)
    return is_finite


@inner
def widen_range(job, source, start, count, found):
    """Widen a range by values; return whether all are finite."""
    top = absmax(source, start, count)
    is_finite = top < np.inf
    if not is_finite:
        lo, hi = finite_extremes(source, start, count)
        top = max(-lo, hi)
    elif has_points(job):
        lo, hi = extremes(source, start, count)
    if has_points(job):
        found[LOW] = min(found[LOW], lo)
        found[HIGH] = max(found[HIGH], hi)
    else:
        found[HIGH] = max(found[HIGH], top)
    return is_finite


@inner
def add_to_lanes(source, start, count, position, sums):
    """Add magnitudes to the lanes of their positions; return how many are not finite."""
    bad = 0
    done = 0
    while done < count:
        lane = (position + done) % LANES
        size = min(LANES - lane, count - done)
        for k in range(size):
            value = np.float64(abs(source[start + done + k]))
            is_number = value < np.inf
            sums[lane + k] += value if is_number else 0.0
            bad += not is_number
        done += size
    return bad


@inner
def add_lanes(sums, lanes):
    """Return the sum of the lanes, by halves."""
    while lanes > 1:
        lanes //= 2
        for k in range(lanes):
            sums[k] += sums[lanes + k]
    return sums[0]


@inner
def fold_chunks(job, partial, low, high):
    """Fold the chunks of every block, in order."""
    real = high.dtype.type
    for block in range(high.size):
        lo = hi = 0.0
        for chunk in range(block * job.chunks, (block + 1) * job.chunks):
            if job.is_mean:
                lo += partial[chunk, LOW]
                hi += partial[chunk, HIGH]
            else:
                lo, hi = min(lo, partial[chunk, LOW]), max(hi, partial[chunk, HIGH])
        if job.is_mean:
            hi /= max(lo, 1.0)
        if has_points(job):
            low[block] = real(lo)
        high[block] = real(hi)
