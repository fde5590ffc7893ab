"""A position of its own for every element: take_along_axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qnumba.layout import plan
from qnumba.moves.blocks import Axis, Runs, axes_of, inexact, map_params, with_blocks
from qnumba.moves.held import Parts, rebuilt
from qnumba.moves.words import codes_of, pack

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qnumba.params import Params


def gathered(parts: Parts, indices: NDArray[np.int64], axis: int) -> Parts:
    """Return the elements at ``indices`` along an axis, as ``numpy.take_along_axis`` does."""
    codes = np.take_along_axis(codes_of(parts), indices, axis)
    declared, params = None, parts.params
    if parts.scheme.block is not None and codes.size:
        declared, params = _gather_params(parts, indices, axis, codes.shape)
    elif parts.scheme.block is not None:
        declared = [each.declared for each in axes_of(parts.plan)]
        grid = plan(parts.scheme, codes.shape).grid
        params = map_params(params, lambda array: np.empty(grid, array.dtype))
    scheme = with_blocks(parts.scheme, declared, codes.shape, parts.scheme.pack_axis)
    return rebuilt(scheme, codes.shape, pack(codes, scheme, codes.shape), params)


def _gather_params(
    parts: Parts, indices: NDArray[np.int64], axis: int, shape: tuple[int, ...]
) -> tuple[list[int], Params]:
    """Return the block extents of a gather, and the parameters of its blocks."""
    axes = axes_of(parts.plan)
    blocks = np.broadcast_to(indices // axes[axis].block, shape)
    for number, other in enumerate(axes):
        if number == axis or other.block == 1:
            continue
        starts = np.arange(0, shape[number], other.block)
        least = np.minimum.reduceat(blocks, starts, axis=number)
        if (least != np.maximum.reduceat(blocks, starts, axis=number)).any():
            problem = f"take_along_axis would split blocks of {other.block} along axis {number}"
            alignment = f"take the same blocks of axis {axis} for every {other.block} neighbours"
            raise inexact(problem, alignment, field="axis", value=number)
        blocks = least
    lines = np.moveaxis(blocks, axis, -1)
    follows = shape[axis] > 1 and bool((np.abs(np.diff(indices, axis=axis)) == 1).all())
    extent = _extent_of_lines(lines, axes[axis], cut=follows)
    if extent is None:
        problem = f"take_along_axis would split blocks of {axes[axis].block} along axis {axis}"
        alignment = "take whole blocks, or equally many positions from every block"
        raise inexact(problem, alignment, field="axis", value=axis)
    chosen = np.moveaxis(lines[..., ::extent], -1, axis)
    extents = [each.declared for each in axes]
    extents[axis] = extent
    return extents, map_params(parts.params, lambda array: np.take_along_axis(array, chosen, axis))


def _extent_of_lines(lines: NDArray[np.int64], axis: Axis, *, cut: bool) -> int | None:
    """Return the block extent that suits all lines, which run along the last axis."""
    size = lines.shape[-1]
    rows = lines.reshape(-1, size)
    changes = np.flatnonzero((rows[:, 1:] != rows[:, :-1]).any(axis=0)) + 1
    ends = np.append(changes, size)
    runs = Runs(np.zeros_like(ends), ends, cut)
    extent = runs.extent(axis)
    if extent in (axis.declared, axis.block):
        return extent
    every = (rows[:, changes] != rows[:, changes - 1]).all()
    return extent if every else None
