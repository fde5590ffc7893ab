"""Ranges of blocks: the least and greatest value of a tile's runs."""

from __future__ import annotations

import numpy as np

from qnumba.cpu.jit import inner
from qnumba.cpu.places import band_of
from qnumba.cpu.runs import absmax, extremes


@inner
def measure_tile(job, source, start, tile, low, high):
    """Widen the ranges of a tile's blocks by its values; return whether all values are finite."""
    rows, count, group, row, column = tile
    is_finite = True
    step, is_affine = job.block_cols, job.is_affine
    for r in range(rows):
        place = band_of(job, group, row + r) * job.blocks + column // step
        if step == 1:
            is_finite &= measure_each(source, start, count, is_affine, low, high, place)
            start += count
            continue
        stop = start + count
        length = min(step - column % step, count)
        while start < stop:
            top = absmax(source, start, length)
            if not top < np.inf:
                is_finite = False
                lo, hi = finite_extremes(source, start, length)
                top = max(-lo, hi)
            elif is_affine:
                lo, hi = extremes(source, start, length)
            if is_affine:
                low[place] = min(low[place], lo)
                high[place] = max(high[place], hi)
            else:
                high[place] = max(high[place], top)
            start += length
            place += 1
            length = min(step, stop - start)
    return is_finite


@inner
def finite_extremes(source, start, count):
    """Return the least and greatest of 0 and the values that are finite."""
    lo = hi = source.dtype.type(0)
    for k in range(start, start + count):
        if abs(source[k]) < np.inf:
            lo, hi = min(lo, source[k]), max(hi, source[k])
    return lo, hi


@inner
def measure_each(source, start, count, is_affine, low, high, place):
    """Widen ranges by one value each; return whether all values are finite."""
    nothing = source.dtype.type(0)
    bad = 0
    for k in range(count):
        value = source[start + k]
        is_number = abs(value) < np.inf
        bad += not is_number
        value = value if is_number else nothing
        if is_affine:
            low[place + k] = min(low[place + k], value)
            high[place + k] = max(high[place + k], value)
        else:
            high[place + k] = max(high[place + k], abs(value))
    return bad == 0
