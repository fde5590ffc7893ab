"""The picture of a report: three panels drawn with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.blockwise import code_grid, effective_scales, per_element
from qnumba.errors import SchemeError
from qnumba.layout import plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from qnumba.qarray import QArray

_MANY_CODES = 64


def three_axes(ax: Any) -> NDArray[Any]:
    """Return three axes to draw on: the ones given, or a new figure's."""
    if ax is None:
        try:
            import matplotlib.pyplot as plt  # noqa: PLC0415 - an extra, needed only here
        except ImportError as error:
            message = 'plot() needs matplotlib: pip install "qnumba[plot]"'
            raise ImportError(message) from error
        ax = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")[1]
    axes = np.atleast_1d(np.asarray(ax, dtype=object)).reshape(-1)
    if axes.size != 3:  # noqa: PLR2004 - values, errors, blocks
        fix = "pass three axes, such as plt.subplots(1, 3)[1]"
        raise SchemeError(f"ax holds {axes.size} axes; {fix}", field="ax", value=ax, fix=fix)
    return axes


def draw_values(ax: Axes, x: NDArray[Any], q: QArray) -> None:
    """Draw the histogram of the values in steps of their scales, and what codes stand for."""
    layout = plan(q.scheme, q.shape)
    grid = code_grid(layout)
    scales, points = effective_scales(q)
    if x.size:
        everything = slice(0, x.shape[0] if x.ndim else 1)
        scale = per_element(scales, layout, everything)
        point = per_element(points, layout, everything)
        with np.errstate(all="ignore"):
            steps = x.astype(np.float64) / np.where(scale == 0, np.nan, scale) + point
        steps = steps[np.isfinite(steps)]
        ax.hist(steps.reshape(-1), bins=120, color="#4878a8", label="values")
    if grid.size <= _MANY_CODES:
        for number in grid:
            ax.axvline(number, color="#c44e52", lw=0.7, alpha=0.7)
    else:
        ax.axvspan(grid[0], grid[-1], color="#c44e52", alpha=0.12, lw=0)
    ax.set(title="Values and the grid of codes", xlabel="value / scale", ylabel="count")
    ax.set_yscale("symlog", linthresh=1)
    ax.set_ylim(bottom=0)


def draw_errors(ax: Axes, error: NDArray[Any]) -> None:
    """Draw the histogram of absolute errors."""
    finite = error[np.isfinite(error)].astype(np.float64)
    if finite.size:
        ax.hist(finite.reshape(-1), bins=120, color="#4878a8")
    ax.set(title="Absolute error", xlabel="|x - y|", ylabel="count")


def draw_blocks(ax: Axes, rms: NDArray[np.float64]) -> None:
    """Draw every block's error: an image where the grid has two long axes, else a line."""
    shape = [extent for extent in rms.shape if extent > 1]
    if len(shape) > 1:
        image = ax.imshow(rms.reshape(-1, shape[-1]), aspect="auto", cmap="magma")
        ax.figure.colorbar(image, ax=ax, label="rms error")
        ax.set(xlabel="block along the last axis", ylabel="block row")
    else:
        ax.plot(rms.reshape(-1), ".", color="#4878a8", ms=4)
        ax.set(xlabel="block", ylabel="rms error")
        ax.set_ylim(bottom=0)
    ax.set_title("Error of every block")
