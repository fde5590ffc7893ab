"""Per block and per element: NumPy ways between an array and its grid of blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.formats import decode_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from qnumba.layout import Plan
    from qnumba.qarray import QArray


def slabs(shape: tuple[int, ...], size: int) -> Iterator[slice]:
    """Yield slices of the first axis that hold about ``size`` elements each."""
    rows = max(size * shape[0] // max(math.prod(shape), 1), 1) if shape else 1
    for start in range(0, shape[0] if shape else 1, rows):
        yield slice(start, min(start + rows, shape[0] if shape else 1))


def add_blocks(
    total: NDArray[Any], numbers: NDArray[Any], at: slice, layout: Plan, combine: np.ufunc
) -> None:
    """Combine the numbers of a slab into the totals of the blocks they are in.

    ``total`` has one axis for each of the array's (one for a single number).
    """
    block = layout.block or (1,)
    for axis, step in enumerate(block):
        first, stop = (at.start, at.stop) if axis == 0 else (0, numbers.shape[axis])
        edges = np.arange(first // step * step, stop, step) - first
        numbers = combine.reduceat(numbers, np.maximum(edges, 0), axis=axis)
    blocks = slice(at.start // block[0], -(-at.stop // block[0]))
    total[blocks] = combine(total[blocks], numbers)


def per_element(per_block: NDArray[Any], layout: Plan, at: slice) -> NDArray[Any]:
    """Return each block's number at every element of a slab."""
    shape, block = layout.shape or (1,), layout.block or (1,)
    grid: NDArray[Any] = per_block.reshape(layout.grid or (1,) * len(shape))
    grid = grid[np.arange(at.start, at.stop) // block[0]]
    for axis in range(1, len(shape)):
        grid = grid.take(np.arange(shape[axis]) // block[axis], axis=axis)
    return grid


def effective_scales(q: QArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the scales codes are multiplied by, and the zero points, in grid shape."""
    scales, points = q.scales, q.zero_points
    if q.global_scale is not None:
        scales = np.asarray(q.global_scale * scales)
    points = np.zeros(scales.shape, np.int32) if points is None else points
    return scales.astype(np.float64), points.astype(np.float64)


def code_grid(layout: Plan) -> NDArray[np.float64]:
    """Return the numbers codes stand for at scale 1, ascending, without NaN and infinity."""
    table = layout.table
    if table is None:
        table = decode_table(layout.value.name)
        table = table[(table >= layout.value.lo) & (table <= layout.value.hi)]
    return np.unique(table).astype(np.float64)
