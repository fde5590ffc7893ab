"""Per block and per element: NumPy ways between an array and its grid of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.formats import decode_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qnumba.layout import Plan
    from qnumba.qarray import QArray


def per_block(numbers: NDArray[Any], layout: Plan, combine: np.ufunc) -> NDArray[Any]:
    """Combine the numbers of every block, in the shape of the grid."""
    for axis, step in enumerate(layout.block):
        starts = np.arange(0, layout.shape[axis], step)
        numbers = combine.reduceat(numbers, starts, axis=axis)
    return numbers.reshape(layout.grid)


def per_element(per_block: NDArray[Any], layout: Plan) -> NDArray[Any]:
    """Return each block's number at every element."""
    grid = per_block.reshape(layout.grid or (1,) * len(layout.shape))
    for axis, (extent, step) in enumerate(zip(layout.shape, layout.block, strict=True)):
        grid = np.repeat(grid, step, axis=axis).take(range(extent), axis=axis)
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
