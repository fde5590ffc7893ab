"""Calibration: ranges of blocks on the device, and the scales and zero points they become."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import types

from qnumba.gpu import driver, general, routes
from qnumba.gpu.arrays import View, empty, view
from qnumba.gpu.launch import (
    FLOATS,
    GEOMETRY,
    INTS,
    POINTERS,
    RULES,
    floats,
    geometry,
    global_row,
    ints,
    run,
    run_warps,
    scale_row,
    tail_geometry,
    top,
)
from qnumba.params import Options, Params

if TYPE_CHECKING:
    from qnumba.layout import Plan

F32, F64, I32 = POINTERS["float32"], POINTERS["float64"], POINTERS["int32"]
_FOLD = 2048  # neighbours that one warp reduces


class Flag:
    """Four numbers on the device: one is set where a value is not finite, two are keys of a range.

    The keys are at ``keys``; both they and the flag start at 0.
    """

    def __init__(self, source: View, options: Options) -> None:
        self._view = view(empty((4,), "int32", source))
        self._raises = options.nonfinite == "raise"
        self._stream = source.stream
        self.pointer, self.keys = self._view.pointer, self._view.pointer + 8
        clear(self.pointer, 4, source.stream)

    def seen(self) -> bool:
        """Return whether one was set; waits for the device only where that decides something."""
        if not self._raises:
            return False
        return bool(driver.read(self.pointer, (1,), np.int32, self._stream)[0])


def clear(pointer: int, count: int, stream: int) -> None:
    """Set int32 numbers to 0."""
    run(general.clear, types.void(I32, INTS), count, stream, pointer, count)


class Pair(NamedTuple):
    """Two numbers of every block, or of every part of one."""

    first: Any
    second: Any

    @classmethod
    def new(cls, count: int, like: View) -> Pair:
        """Return room for ``count`` of them."""
        return cls(empty((count,), "float64", like), empty((count,), "float64", like))

    def pointers(self) -> tuple[int, int]:
        """Return the addresses."""
        return view(self.first).pointer, view(self.second).pointer


def find(source: View, plan: Plan, options: Options, flag: Flag) -> Params:
    """Queue the kernels that find the parameters of an array with elements."""
    blocks = math.prod(plan.grid)
    affine = plan.scheme.mode == "affine"
    mean = options.method == "absmean"
    method = general.MEAN if mean else general.MINMAX if affine else general.AMAX
    runs = routes.runs_of(plan)
    if runs and not mean and routes.is_aligned(plan, source, None):
        pair = _fast_range(source, plan, method, flag)
    else:
        pair = _range(source, plan, method, flag)
    finish = _finish_affine if affine else _finish_symmetric
    return finish(source, plan, options, pair, blocks)


def _range(source: View, plan: Plan, method: int, flag: Flag) -> Pair:
    """Queue the general kernels that reduce every block."""
    blocks = math.prod(plan.grid)
    chunks = -(-math.prod(plan.block) // general.CHUNK)
    tasks = blocks * chunks
    pair = Pair.new(tasks, source)
    signature = types.void(POINTERS[source.dtype], GEOMETRY, INTS, INTS, INTS, F64, F64, I32)
    arguments = (source.pointer, geometry(plan), tasks, chunks, method, *pair.pointers())
    run_warps(general.statistics, signature, tasks, source.stream, *arguments, flag.pointer)
    if chunks > 1 and blocks == 1 and method != general.MEAN:
        return _fold_all(pair, chunks, method, source)
    return _fold(pair, blocks, chunks, tasks, method, source) if chunks > 1 else pair


def _fast_range(source: View, plan: Plan, method: int, flag: Flag) -> Pair:
    """Queue the fast kernels that reduce every block; what a tensor leaves over, the general."""
    affine, stream = int(method == general.MINMAX), source.stream
    blocks, tail = math.prod(plan.grid), routes.runs_of(plan).tail
    pair = Pair.new(blocks + bool(tail), source)
    keys = flag.keys
    held = None
    if plan.grid:
        held = empty((2 * blocks,), "int32", source)
        keys = view(held).pointer
        clear(keys, 2 * blocks, stream)
    routes.find_range(source, plan, affine, keys, flag.pointer)
    routes.settle(keys, pair.pointers(), blocks, affine, stream)
    if not tail:
        return pair
    rest = source.pointer + (plan.size - tail) * source.itemsize
    signature = types.void(POINTERS[source.dtype], GEOMETRY, INTS, INTS, INTS, F64, F64, I32)
    last = (pointer + 8 for pointer in pair.pointers())
    arguments = (rest, tail_geometry(tail), 1, 1, method, *last, flag.pointer)
    run_warps(general.statistics, signature, 1, stream, *arguments)
    return _fold_all(pair, 2, method, source)


def _fold(pair: Pair, groups: int, length: int, total: int, method: int, like: View) -> Pair:
    """Reduce ``length`` neighbours to one, ``groups`` times."""
    folded = Pair.new(groups, like)
    signature = types.void(F64, F64, F64, F64, INTS, INTS, INTS, INTS)
    arguments = (*pair.pointers(), *folded.pointers(), groups, length, total, method)
    run_warps(general.fold, signature, groups, like.stream, *arguments)
    return folded


def _fold_all(pair: Pair, count: int, method: int, like: View) -> Pair:
    """Reduce everything to one."""
    while count > 1:
        groups = -(-count // _FOLD)
        pair = _fold(pair, groups, _FOLD, count, method, like)
        count = groups
    return pair


def _finish_symmetric(
    source: View, plan: Plan, options: Options, pair: Pair, blocks: int
) -> Params:
    scales = empty(plan.grid, "float32", source)
    two_level = plan.scheme.two_level
    peak = _fold_all(pair, blocks, general.AMAX, source) if two_level else pair
    over = empty((), "float32", source) if two_level else None
    rule = RULES[options.scale_rounding]
    power = (int(rule > 1), plan.value.emax, plan.value.mantissa_bits)
    signature = types.void(
        F64, F64, F64, F32, F32, INTS, floats(4), FLOATS, floats(2), ints(3), INTS, INTS, INTS
    )
    run(
        general.finish_symmetric,
        signature,
        blocks,
        source.stream,
        *(*pair.pointers(), peak.pointers()[0], view(scales).pointer),
        *(0 if over is None else view(over).pointer, blocks, scale_row(plan), top(plan)),
        *(global_row(plan), power, rule),
        *(general.MEAN if options.method == "absmean" else general.AMAX, is_wide(source)),
    )
    return Params(scales, over)


def is_wide(source: View) -> int:
    """Return whether the compute type is float64."""
    return int(source.dtype == "float64")


def _finish_affine(source: View, plan: Plan, options: Options, pair: Pair, blocks: int) -> Params:
    scales = empty(plan.grid, "float32", source)
    points = empty(plan.grid, "int32", source)
    signature = types.void(F64, F64, F32, I32, INTS, floats(4), floats(2), INTS, INTS)
    run(
        general.finish_affine,
        signature,
        blocks,
        source.stream,
        *(*pair.pointers(), view(scales).pointer, view(points).pointer, blocks),
        *(scale_row(plan), (float(plan.value.lo), float(plan.value.hi))),
        *(RULES[options.scale_rounding], is_wide(source)),
    )
    return Params(scales, None, points)
