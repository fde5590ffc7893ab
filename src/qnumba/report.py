"""The error report: what quantization cost, in numbers, text, HTML and a picture."""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.blockwise import add_blocks, code_grid, effective_scales, per_element, slabs
from qnumba.errors import SchemeError
from qnumba.inputs import as_array, as_native
from qnumba.layout import plan
from qnumba.qarray import QArray, scheme_of
from qnumba.validate import require

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from qnumba.layout import Plan

_CHUNK = 1 << 20
_WORST = 5


@dataclass(frozen=True)
class BlockError:
    """One block: its index in the block grid, and its root mean square and largest error."""

    index: tuple[int, ...]
    rms_error: float
    max_error: float


@dataclass(frozen=True)
class Report:
    """What a quantized array lost. Errors are in the units of the array, over finite values.

    Attributes
    ----------
    scheme : str
        Text form of the scheme.
    shape : tuple of int
        Shape of the array.
    snr : float
        Signal to noise ratio in dB: 10 log10(sum x**2 / sum (x - y)**2). Infinite if exact.
    max_error, mean_error, p99_error : float
        Largest, mean and 99th percentile absolute error, of what `q` decodes to in float32, or in
        float64 where x is float64.
    relative_rms : float
        sqrt(sum (x - y)**2 / sum x**2).
    clipped : int
        Values more than half a step beyond the ends of their block's range, give or take a
        millionth of it; in a block with a scale of 0, every value other than 0.
    dead_blocks : int
        Blocks with values other than 0 that all became 0: the scale is too coarse.
    blocks : int
        All blocks.
    nonfinite : int
        NaN and infinite values, left out of the errors.
    bits_per_value : float
        Bits an element takes, scales included.
    compression : float
        Bytes of the array divided by bytes of the codes and scales.
    worst_blocks : tuple of BlockError
        The blocks with the largest root mean square error, worst first.
    """

    scheme: str
    shape: tuple[int, ...]
    snr: float
    max_error: float
    mean_error: float
    p99_error: float
    relative_rms: float
    clipped: int
    dead_blocks: int
    blocks: int
    nonfinite: int
    bits_per_value: float
    compression: float
    worst_blocks: tuple[BlockError, ...]
    _x: NDArray[Any] = field(repr=False, compare=False)
    _error: NDArray[Any] = field(repr=False, compare=False)
    _rms: NDArray[np.float64] = field(repr=False, compare=False)
    _q: QArray = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dict that ``json`` can write; None where one is not finite."""
        names = [name for name in self.__dataclass_fields__ if not name.startswith("_")]
        figures = _plain({name: getattr(self, name) for name in names})
        figures["shape"] = list(self.shape)
        figures["worst_blocks"] = [
            _plain(asdict(block)) | {"index": list(block.index)} for block in self.worst_blocks
        ]
        return figures

    def _rows(self) -> dict[str, str]:
        """Return what is shown: names and texts."""
        share = self.clipped / max(math.prod(self.shape), 1)
        worst = ", ".join(
            f"{_index_text(block.index)} (rms {block.rms_error:.3g})"
            for block in self.worst_blocks[:3]
        )
        rows = {
            "scheme": self.scheme,
            "shape": " x ".join(map(str, self.shape)) or "one number",
            "bits per value": f"{self.bits_per_value:.4g} ({self.compression:.3g} times smaller)"
            if math.prod(self.shape)
            else "",
            "signal to noise": f"{self.snr:.2f} dB",
            "relative rms error": f"{self.relative_rms:.3g}",
            "absolute error": f"max {self.max_error:.3g}, mean {self.mean_error:.3g}, "
            f"99th percentile {self.p99_error:.3g}",
            "clipped values": f"{self.clipped:,} ({share:.2%})",
            "dead blocks": f"{self.dead_blocks:,} of {self.blocks:,}",
            "not finite": f"{self.nonfinite:,}",
            "worst blocks": worst,
        }
        return {name: text for name, text in rows.items() if text}

    def __str__(self) -> str:
        """Return the figures as a table that fits one screen."""
        return "\n".join(f"{name:<18}  {text}" for name, text in self._rows().items())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the figures as a table for notebooks."""
        cells = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
            for name, text in self._rows().items()
        )
        return f"<table><caption>Quantization report</caption>{cells}</table>"

    def plot(self, ax: Any = None) -> NDArray[Any]:
        """Draw the values on the grid of codes, the errors, and the error of every block.

        Parameters
        ----------
        ax : sequence of three matplotlib axes, optional
            Where to draw. Default: a new figure.

        Returns
        -------
        numpy.ndarray
            The three axes. Nothing is shown.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        SchemeError
            If ``ax`` is not three axes.
        """
        from qnumba import plots  # noqa: PLC0415 - only who draws needs it

        axes = plots.three_axes(ax)
        plots.draw_values(axes[0], self._x, self._q)
        plots.draw_errors(axes[1], self._error)
        plots.draw_blocks(axes[2], self._rms)
        return axes


def report(x: ArrayLike, q: QArray) -> Report:
    """Measure what quantization cost.

    Parameters
    ----------
    x : array_like
        The array that was quantized.
    q : QArray
        What it became.

    Returns
    -------
    Report

    Raises
    ------
    QuantizedTypeError
        If ``q`` is not quantized, or ``x`` is.
    SchemeError
        If the shapes differ.

    Examples
    --------
    >>> from qnumba import quantize
    >>> x = np.linspace(-1, 1, 100, dtype=np.float32)
    >>> found = report(x, quantize(x, "int8"))
    >>> found.snr > 40
    True
    """
    scheme = scheme_of(q)
    array = as_array(x)
    require(scheme, array.shape, array.dtype.name)
    if array.shape != q.shape:
        fix = "pass the array that was quantized"
        message = f"x has shape {array.shape}, the quantized array {q.shape}; {fix}"
        raise SchemeError(message, field="x", value=array.shape, fix=fix)
    native = as_native(array)
    layout = plan(scheme, q.shape)
    found = _measure(native, q, layout)
    unit, error_unit = found.units
    rms = error_unit * np.sqrt(found.squares / np.maximum(found.counts, 1)).reshape(layout.grid)
    peak, flat = found.peak.reshape(layout.grid), rms.reshape(-1)
    order = np.argsort(-flat, kind="stable")[:_WORST]
    worst = [np.unravel_index(i, rms.shape) for i in order if flat[i] > 0]
    dead = found.wanted & ~found.alive
    return Report(
        scheme=str(scheme),
        shape=q.shape,
        snr=_decibels(found),
        max_error=float(found.peak.max(initial=0)),
        mean_error=error_unit * (found.total / max(q.size - found.nonfinite, 1)),
        p99_error=min(_percentile(native, found), float(found.peak.max(initial=0))),
        relative_rms=error_unit / unit * math.sqrt(found.noise / found.signal)
        if found.signal
        else (math.inf if found.noise else 0.0),
        clipped=found.clipped,
        dead_blocks=int(dead.sum()),
        blocks=dead.size,
        nonfinite=found.nonfinite,
        bits_per_value=q.bits_per_value,
        compression=array.nbytes / q.nbytes if q.nbytes else float("nan"),
        worst_blocks=tuple(
            BlockError(tuple(int(i) for i in at), float(rms[at]), float(peak[at])) for at in worst
        ),
        _x=native,
        _error=found.error,
        _rms=rms,
        _q=q,
    )


class _Measured:
    """What is added up slab by slab, over finite values.

    The signal is in the first of ``units``, noise, squares and total in the other: powers of two
    near the largest value and the largest error, so that no sum overflows and none vanishes.
    """

    def __init__(self, q: QArray, x: NDArray[Any], layout: Plan) -> None:
        grid = layout.grid or (1,) * max(len(layout.shape), 1)
        self.error = q.dequantize(np.float64 if x.dtype == np.float64 else np.float32)
        self.squares, self.counts, self.peak = np.zeros((3, *grid))
        self.wanted, self.alive = np.zeros((2, *grid), np.bool_)
        self.signal = self.noise = self.total = 0.0
        self.units = 1.0, 1.0
        self.nonfinite = self.clipped = 0


def _measure(x: NDArray[Any], q: QArray, layout: Plan) -> _Measured:
    """Measure an array in slabs; ``error`` becomes every value's absolute error."""
    found = _Measured(q, x, layout)
    shape = layout.shape or (1,)
    x, error = x.reshape(shape), found.error.reshape(shape)
    ends = _ends(q, layout)
    parts = list(slabs(shape, _CHUNK)) if x.size else []
    sizes = [[np.abs(part).max() for part in _errors(x[at], error[at])] for at in parts]
    unit, error_unit = (_unit(max(each)) for each in zip([0, 0], *sizes, strict=True))
    found.units = unit, error_unit
    for at in parts:
        numbers, apart = _errors(x[at], error[at])
        is_finite, decoded = np.isfinite(x[at]), error[at]
        relative = apart / error_unit
        add_blocks(found.squares, np.square(relative), at, layout, np.add)
        found.noise += float(np.square(relative).sum())
        found.signal += float(np.square(numbers / unit).sum())
        found.total += float(relative.sum())
        found.nonfinite += int((~is_finite).sum())
        add_blocks(found.counts, is_finite.astype(np.float64), at, layout, np.add)
        add_blocks(found.peak, apart, at, layout, np.maximum)
        add_blocks(found.wanted, numbers != 0, at, layout, np.logical_or)
        add_blocks(found.alive, decoded != 0, at, layout, np.logical_or)
        floor, roof = (per_element(end, layout, at) for end in ends)
        found.clipped += int(((numbers < floor) | (numbers > roof)).sum())
        with np.errstate(over="ignore"):
            error[at] = apart
    return found


def _errors(
    x: NDArray[Any], decoded: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the numbers of a slab and their errors as float64, with 0 for what is not finite."""
    is_finite = np.isfinite(x)
    with np.errstate(over="ignore", invalid="ignore"):  # a signalling NaN is as good as any
        numbers = np.where(is_finite, x.astype(np.float64), 0)
        return numbers, np.where(is_finite, np.abs(numbers - decoded), 0)


def _unit(largest: float) -> float:
    """Return the power of two that a number is 1 to 2 times, or 1/2 for 0 and infinity."""
    return float(2.0 ** (math.frexp(largest)[1] - 1))


def _decibels(found: _Measured) -> float:
    if found.noise == 0:
        return math.inf
    if found.signal == 0 or found.noise == math.inf:
        return -math.inf
    unit, error_unit = map(math.log10, found.units)
    return 10 * math.log10(found.signal / found.noise) + 20 * (unit - error_unit)


def _plain(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures as JSON has them, which knows no infinity."""
    return {
        name: None if isinstance(figure, float) and not math.isfinite(figure) else figure
        for name, figure in figures.items()
    }


def _percentile(x: NDArray[Any], found: _Measured) -> float:
    """Return the 99th percentile of the errors of finite values."""
    errors = found.error[np.isfinite(x)] if found.nonfinite else found.error
    with np.errstate(invalid="ignore"):  # between infinite errors NumPy finds NaN
        figure = float(np.quantile(errors, 0.99)) if errors.size else 0.0
    return math.inf if math.isnan(figure) else figure


def _ends(q: QArray, layout: Plan) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the numbers half a step beyond the ends of every block's range."""
    grid = code_grid(layout)
    low, high = (3 * grid[0] - grid[1]) / 2, (3 * grid[-1] - grid[-2]) / 2
    scales, points = effective_scales(q)
    slack = 1 + 1e-6  # a scale rounded to its dtype may put the largest value just past half a step
    return (low - points) * scales * slack, (high - points) * scales * slack


def _index_text(index: tuple[int, ...]) -> str:
    return str(index[0]) if len(index) == 1 else str(index)
