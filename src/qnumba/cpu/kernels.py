"""Kernels of arrays that are there: quantize and dequantize, item by item, serial or in threads.

An item is a group of rows by a group of columns. Where a job measures, its items are whole blocks;
otherwise they are any rows, as the scales are there already. The arithmetic is elsewhere.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from qnumba.cpu.jit import Kernel, inner, kernel, shared_kernel
from qnumba.cpu.places import row_of, rows_of
from qnumba.cpu.ranges import measure_tile
from qnumba.cpu.scales import store_scales
from qnumba.cpu.tiles import TILE, decode_tile, encode_tile, source_of


@inner
def make_room(size):
    """Return scratch for tiles: values, scales and zero points by run and by value, codes."""
    numbers = np.empty(5 * TILE, np.float32)
    z = numbers[3 * TILE :].view(np.int32)
    for k in range(min(size, TILE)):
        z[k] = z[TILE + k] = 0
    codes = np.empty(TILE, np.uint8)
    values, e, e_each = numbers[:TILE], numbers[TILE : 2 * TILE], numbers[2 * TILE : 3 * TILE]
    return values, e, z[:TILE], e_each, z[TILE:], codes


# --- quantize


@kernel
def quantize_items(
    first, stop, looks, x, jobs, global_scale, edges, low, high, scales, points, words, flags
):
    """Measure ranges, store scales and encode codes of some items, as far as the job says.

    ``flags[0]`` becomes 1 where values that are not finite are seen: by a job that measures, or
    where an encoder ``looks`` for them.
    """
    job = jobs[0]
    room = make_room(x.size)
    raw = np.empty(min(TILE, scales.size), np.float64)
    params = (global_scale, scales, points)
    for item in range(first, stop):
        group, column = item // job.col_groups, item % job.col_groups * job.group_cols
        place = (group, column, min(job.cols, column + job.group_cols))
        is_finite = True
        if job.measures:
            is_finite = measure_item(job, x, place, low, high, room[0])
        if job.stores:
            store_item(job, place, low, high, params, raw)
        if job.encodes:
            is_finite &= encode_item(
                job, x, place, looks or not is_finite, edges, params, words, room
            )
        if not is_finite:
            flags[0] = 1


@shared_kernel
def quantize_shared(
    items, step, looks, x, jobs, global_scale, edges, low, high, scales, points, words, flags
):
    """Quantize all items in threads."""
    for chunk in prange((items + step - 1) // step):
        first = np.int64(chunk) * step
        quantize_items(
            first,
            min(items, first + step),
            looks,
            x,
            jobs,
            global_scale,
            edges,
            low,
            high,
            scales,
            points,
            words,
            flags,
        )


quantize = Kernel(quantize_items, quantize_shared)


@inner
def measure_item(job, x, place, low, high, values):
    """Find the ranges of an item's blocks; return whether all its values are finite."""
    group, first_column, stop_column = place
    rows = rows_of(job, group)
    is_finite = True
    for k in range(0, rows, job.tile_rows):
        row, tile_rows = row_of(job, group, k), min(job.tile_rows, rows - k)
        for column in range(first_column, stop_column, TILE):
            count = min(TILE, stop_column - column)
            tile = (tile_rows, count, group, row, column)
            start = row * job.cols + column
            source, start = source_of(x, start, tile_rows * count, job.is_brain, values)
            is_finite &= measure_tile(job, source, start, tile, low, high)
    return is_finite


@inner
def store_item(job, place, low, high, params, raw):
    """Store the scales of an item's blocks, which are neighbours in the arrays of scales."""
    group, first_column, stop_column = place
    global_scale, scales, points = params
    first = first_column // job.block_cols
    count = (stop_column - 1) // job.block_cols + 1 - first
    bands = 1
    if job.axes == 1:
        bands = (rows_of(job, group) + job.steps[0] - 1) // job.steps[0]
        group = group * job.group_rows // job.steps[0]
    first += group * job.blocks
    count += (bands - 1) * job.blocks
    store_scales(job, global_scale, low, high, first, count, scales, points, raw)


@inner
def encode_item(job, x, place, looks, edges, params, words, room):
    """Encode an item; return whether its values are finite, if it ``looks``."""
    group, first_column, stop_column = place
    rows = rows_of(job, group)
    is_finite = True
    for k in range(0, rows, job.tile_rows):
        row, tile_rows = row_of(job, group, k), min(job.tile_rows, rows - k)
        for column in range(first_column, stop_column, TILE):
            tile = (tile_rows, min(TILE, stop_column - column), group, row, column)
            is_finite &= encode_tile(job, x, tile, looks, edges, params, words, room)
    return is_finite


# --- dequantize


@kernel
def dequantize_items(first, stop, words, jobs, global_scale, table, scales, points, out):
    """Decode some items."""
    job = jobs[0]
    room = make_room(out.size)
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


@shared_kernel
def dequantize_shared(items, step, words, jobs, global_scale, table, scales, points, out):
    """Decode all items in threads."""
    for chunk in prange((items + step - 1) // step):
        first = np.int64(chunk) * step
        stop = min(items, first + step)
        dequantize_items(first, stop, words, jobs, global_scale, table, scales, points, out)


dequantize = Kernel(dequantize_items, dequantize_shared)
