"""Ranges of blocks: the least and greatest value of a tile's runs."""

from __future__ import annotations

import numpy as np

from qnumba.cpu.jit import inner
from qnumba.cpu.places import band_of, has_points, next_runs
from qnumba.cpu.runs import absmax, absmax_each, absmax_runs, extremes


@inner
def measure_tile(job, source, start, tile, low, high):
    """Widen the ranges of a tile's blocks by its values; return whether all values are finite.

    Where they are not, the ranges are of no use: see ``measure_finite``.
    """
    rows, count, group, row, column = tile
    step, size = job.block_cols, rows * count
    place = 0
    while place < size:
        runs, length = next_runs(job, tile, place, job.has_neighbours)
        band = band_of(job, group, row + place // count)
        first = band * job.blocks + (column + place % count) // step
        if has_points(job):
            found = absmax(source, start + place, runs * length)
            widen_runs(source, start + place, runs, length, low, high, first)
        elif step == 1:
            found = absmax_each(source, start + place, runs, high, first)
        else:
            found = absmax_runs(
                source, start + place, runs, length, job.ahead_measured, high, first
            )
        if not found < np.inf:
            return False
        place += runs * length
    return True


@inner
def widen_runs(source, start, runs, length, low, high, first):
    """Widen the two ends of ranges by the values of their runs."""
    if length == 1:
        for k in range(runs):
            value, lo, hi = source[start + k], low[first + k], high[first + k]
            low[first + k] = value if value < lo else lo
            high[first + k] = value if value > hi else hi
        return
    for k in range(runs):
        lo, hi = extremes(source, start + k * length, length)
        low[first + k] = min(low[first + k], lo)
        high[first + k] = max(high[first + k], hi)


@inner
def measure_finite(job, source, start, tile, low, high):
    """Widen the ranges of a tile's blocks by those of its values that are finite."""
    rows, count, group, row, column = tile
    for r in range(rows):
        first = band_of(job, group, row + r) * job.blocks
        for k in range(count):
            value = source[start + r * count + k]
            place = first + (column + k) // job.block_cols
            if not abs(value) < np.inf:
                continue
            if has_points(job):
                low[place] = min(low[place], value)
                high[place] = max(high[place], value)
            else:
                high[place] = max(high[place], abs(value))


@inner
def finite_extremes(source, start, count):
    """Return the least and greatest of 0 and the values that are finite."""
    lo = hi = source.dtype.type(0)
    for k in range(start, start + count):
        if abs(source[k]) < np.inf:
            lo, hi = min(lo, source[k]), max(hi, source[k])
    return lo, hi
