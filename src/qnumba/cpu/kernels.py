"""Kernels of arrays that are there: quantize and dequantize, item by item, serial or in threads.

An item is a group of rows by a group of columns. Where a job measures, its items are whole blocks;
otherwise they are any rows, as the scales are there already. The arithmetic is elsewhere.
"""

from __future__ import annotations

import numpy as np

from qnumba.cpu.jit import inner, kernel
from qnumba.cpu.places import has_points, row_of, rows_of
from qnumba.cpu.ranges import measure_finite, measure_tile
from qnumba.cpu.room import ROOM, TILE, split_room, unowned
from qnumba.cpu.scales import store_scales
from qnumba.cpu.tiles import decode_tile, encode_tile, source_of

# --- quantize


@kernel
def quantize(
    first_item, stop, x, jobs, global_scale, edges, low, high, scales, points, words, flags
):
    """Measure ranges, store scales and encode codes of some items, as far as the job says.

    ``flags[0]`` becomes 1 where values that are not finite are seen.
    """
    job = jobs[0]
    owner = np.empty(ROOM, np.uint8)
    room = split_room(owner)
    x, edges, low, high = unowned(x), unowned(edges), unowned(low), unowned(high)
    scales, points, words = unowned(scales), unowned(points), unowned(words)
    params = (global_scale, scales, points)
    for item in range(first_item, stop):
        group, column = item // job.col_groups, item % job.col_groups * job.group_cols
        place = (group, column, min(job.cols, column + job.group_cols))
        is_finite = True
        if job.measures:
            is_finite = measure_item(job, x, place, low, high, room[0], skips=False)
            if not is_finite:
                clear_item(job, place, low, high)
                measure_item(job, x, place, low, high, room[0], skips=True)
        if job.stores:
            first, count = blocks_of(job, place)
            store_scales(job, global_scale, low, high, first, count, scales, points, room[6])
        if job.encodes:
            is_finite &= encode_item(job, x, place, edges, params, words, room)
        if not is_finite:
            flags[0] = 1
    owner[0] = 0  # kept until here


@inner
def measure_item(job, x, place, low, high, values, skips):
    """Find the ranges of an item's blocks; return whether all its values are finite.

    Ranges of values that are not are of no use, unless it ``skips`` those, which takes longer.
    """
    group, first_column, stop_column = place
    rows = rows_of(job, group)
    is_finite = True
    for k in range(0, rows, job.tile_rows):
        row, tile_rows = row_of(job, group, k), min(job.tile_rows, rows - k)
        for column in range(first_column, stop_column, TILE):
            count = min(TILE, stop_column - column)
            tile = (tile_rows, count, group, row, column)
            start = row * job.cols + column
            source, start = source_of(job, x, start, tile_rows * count, values, is_widened=False)
            if skips:
                measure_finite(job, source, start, tile, low, high)
            else:
                is_finite &= measure_tile(job, source, start, tile, low, high)
    return is_finite


@inner
def blocks_of(job, place):
    """Return the first of an item's blocks, which are neighbours, and how many there are."""
    group, first_column, stop_column = place
    first = first_column // job.block_cols
    count = (stop_column - 1) // job.block_cols + 1 - first
    bands = 1
    if job.axes == 1:
        bands = (rows_of(job, group) + job.steps[0] - 1) // job.steps[0]
        group = group * job.group_rows // job.steps[0]
    return first + group * job.blocks, count + (bands - 1) * job.blocks


@inner
def clear_item(job, place, low, high):
    """Make the ranges of an item's blocks empty."""
    first, count = blocks_of(job, place)
    for block in range(first, first + count):
        high[block] = 0
        if has_points(job):
            low[block] = 0


@inner
def encode_item(job, x, place, edges, params, words, room):
    """Encode an item; return whether its values are finite."""
    group, first_column, stop_column = place
    rows = rows_of(job, group)
    is_finite = True
    is_tile = rows <= job.tile_rows and stop_column - first_column <= TILE
    is_widened = is_tile and job.measures
    for k in range(0, rows, job.tile_rows):
        row, tile_rows = row_of(job, group, k), min(job.tile_rows, rows - k)
        for column in range(first_column, stop_column, TILE):
            tile = (tile_rows, min(TILE, stop_column - column), group, row, column)
            is_finite &= encode_tile(job, x, tile, is_widened, edges, params, words, room)
    return is_finite


# --- dequantize


@kernel
def dequantize(first, stop, words, jobs, global_scale, table, scales, points, out):
    """Decode some items."""
    job = jobs[0]
    owner = np.empty(ROOM, np.uint8)
    room = split_room(owner)
    words, table, scales = unowned(words), unowned(table), unowned(scales)
    points, out = unowned(points), unowned(out)
    params = (global_scale, scales, points)
    for item in range(first, stop):
        group, first_column = item // job.col_groups, item % job.col_groups * job.group_cols
        stop_column = min(job.cols, first_column + job.group_cols)
        rows = rows_of(job, group)
        for k in range(0, rows, job.tile_rows):
            row, tile_rows = row_of(job, group, k), min(job.tile_rows, rows - k)
            for column in range(first_column, stop_column, TILE):
                tile = (tile_rows, min(TILE, stop_column - column), group, row, column)
                decode_tile(job, words, tile, table, params, out, room)
    owner[0] = 0  # kept until here
