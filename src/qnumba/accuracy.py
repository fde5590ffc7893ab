"""How much is lost: the relative error of every kind of scheme, against the bits it takes.

The error is that of burn's accuracy harness, the relative Frobenius norm ``|x - y| / |x|``, and so
is the grid: 64 x 64 normal weights of three spreads; one scale, blocks of 16 and 32, and two
levels; each scale dtype. burn draws its weights with a generator of its own, whose constants are
not known here; these come from NumPy's default generator with a fixed seed, the same draws times
each spread. Beside the grid stand the presets with every rule for scales, on normal and on
heavy-tailed numbers and on real weights.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.data import attention_weight
from qnumba.formats import SCALES, STORES, TWO_LEVEL_SCALES, VALUES
from qnumba.io.files import atomic_write
from qnumba.quantize import quantize
from qnumba.scheme import PRESETS, Scheme
from qnumba.validate import validate

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

SEED = 20260821
SHAPE = (64, 64)
SPREADS = (1.0, 0.1, 0.02)  # standard deviations
SYMMETRIC = tuple(name for name, row in VALUES.items() if row.kind != "uint")
LEVELS: dict[str, dict[str, Any]] = {
    "tensor": {},
    "block 16": {"block": 16},
    "block 32": {"block": 32},
    "two-level 16": {"block": 16, "tensor_scale": "F32"},
    "two-level 32": {"block": 32, "tensor_scale": "F32"},
}
RULES = ("up", "nearest", "floor", "even")  # for storing scales
PICTURES = (".pdf", ".png", ".svg")
# Of the chart: the marker of each level, and the colour inside; empty for the value type's own.
MARKERS = {
    "tensor": ("o", ""),
    "block 16": ("s", ""),
    "block 32": ("D", ""),
    "two-level 16": ("s", "white"),
    "two-level 32": ("D", "white"),
}


class Measurement(NamedTuple):
    """One scheme on one array.

    ``error`` is the relative Frobenius norm of what is lost; ``bits`` are bits per value, scales
    included. ``group`` says which scales: the level of the grid, or the rule of a preset.
    """

    data: str
    name: str
    group: str
    scheme: Scheme
    bits: float
    error: float


def relative_error(x: ArrayLike, scheme: Scheme | str, **options: Any) -> float:
    """Return how much of an array is lost, relative to the array.

    Parameters
    ----------
    x : array_like
        What to quantize.
    scheme : Scheme or str
        How.
    **options
        As for ``quantize``.

    Returns
    -------
    float
        The Frobenius norm of the difference over that of ``x``, in float64; 0 for zeros.
    """
    exact = np.asarray(x, np.float64)
    decoded = quantize(x, scheme, **options).dequantize(np.float64)
    largest = np.abs(exact).max(initial=0)
    if largest == 0:
        return 0.0
    lost = np.linalg.norm((decoded - exact) / largest)
    return float(lost / np.linalg.norm(exact / largest))


def weights(spread: float = 1.0, shape: tuple[int, ...] = SHAPE) -> NDArray[np.float32]:
    """Return the normal weights of the grid: float32, of a standard deviation."""
    draws = np.random.default_rng(SEED).standard_normal(shape)
    return (draws * spread).astype(np.float32)


def arrays() -> dict[str, NDArray[np.float32]]:
    """Return the arrays that presets are measured on, by name."""
    heavy = np.random.default_rng(SEED).standard_t(4, (384, 384)).astype(np.float32)
    return {
        "normal": weights(shape=(384, 384)),
        "heavy-tailed": heavy,
        "real weights": attention_weight(),
    }


def measure_grid(values: Sequence[str] = SYMMETRIC) -> list[Measurement]:
    """Return the error of every value type, level and scale dtype on weights of every spread."""
    found = []
    for spread, value in product(SPREADS, values):
        x = weights(spread)
        for level, scale in _levels():
            arguments = LEVELS[level] | {"block_scale" if LEVELS[level] else "tensor_scale": scale}
            scheme = Scheme(value, **arguments)  # type: ignore[arg-type]
            data = f"normal, spread {spread:g}"
            found.append(_measure(data, x, value, f"{level}, {scale}", scheme))
    return found


def measure_presets() -> list[Measurement]:
    """Return the error of every preset with every rule it can store scales by, on every array."""
    return [
        _measure(data, x, name, rule, scheme, scale_rounding=rule)
        for name, scheme in PRESETS.items()
        for rule in RULES
        if not validate(scheme, scale_rounding=rule)
        for data, x in arrays().items()
    ]


def pivot(rows: Sequence[Measurement], by: str) -> list[list[str]]:
    """Return a table of errors: a line for each name and group, a column for each of ``by``.

    Parameters
    ----------
    rows : sequence of Measurement
        With ``by="name"`` of one array.
    by : str
        ``"name"``: lines are groups. ``"data"``: lines are names and groups, with their bits.

    Returns
    -------
    list of list of str
        The head and the lines.
    """
    columns = list(dict.fromkeys(getattr(row, by) for row in rows))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        bits = f"{_overhead(row):.3g}" if by == "name" else f"{row.bits:.4g}"
        head = (row.group, bits) if by == "name" else (row.name, row.group, bits)
        lines.setdefault(head, {})[getattr(row, by)] = f"{row.error:.3g}"
    first = ["scales", "bits of scales"] if by == "name" else ["preset", "rule", "bits"]
    return [
        [*first, *columns],
        *([*head, *(line.get(name, "") for name in columns)] for head, line in lines.items()),
    ]


def plot(path: str | PathLike[str], rows: Sequence[Measurement] | None = None) -> None:
    """Draw the errors on normal weights of spread 1 against the bits per value.

    Parameters
    ----------
    path : path-like
        The picture; its ending says the format.
    rows : sequence of Measurement, optional
        Default: ``measure_grid()``.

    Raises
    ------
    ImportError
        matplotlib is not installed: ``pip install "qnumba[plot]"``.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra, needed only here
        from matplotlib import pyplot as plt  # noqa: PLC0415
    except ImportError as error:
        raise ImportError('a chart needs matplotlib: pip install "qnumba[plot]"') from error
    rows = measure_grid() if rows is None else rows
    rows = [row for row in rows if row.data == f"normal, spread {SPREADS[0]:g}"]
    widths = sorted({VALUES[row.scheme.value].bits for row in rows})
    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "qnumba"}):
        figure, panels = plt.subplots(1, len(widths), figsize=(10, 3.9), layout="constrained")
        for axes, width in zip(panels, widths, strict=True):
            _draw(axes, [row for row in rows if VALUES[row.scheme.value].bits == width])
            axes.set(title=f"{width} bits", xlabel="bits per value, scales included")
        panels[0].set_ylabel("relative error")
        for level, (marker, face) in MARKERS.items():
            panels[-1].plot([], [], marker, mec="gray", mfc=face or "gray", label=level)
        for axes in panels:
            axes.legend(frameon=False, fontsize=8, loc="best")
        ending = Path(path).suffix[1:].lower()
        date = {"Date": None} if ending == "svg" else {}
        with atomic_write(path) as file:
            figure.savefig(file, format=ending, dpi=120, metadata=date)
        plt.close(figure)


def _draw(axes: Any, rows: Sequence[Measurement]) -> None:
    """Draw the measurements of one width: a colour for each value type, a marker for each level."""
    for number, value in enumerate(dict.fromkeys(row.name for row in rows)):
        color = f"C{number}"
        for row in rows:
            if row.name == value:
                marker, face = MARKERS[row.group.partition(",")[0]]
                axes.plot(row.bits, row.error, marker, ms=6, mec=color, mfc=face or color)
        axes.plot([], [], "o", color=color, label=value)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.grid(alpha=0.25, which="both")
    axes.spines[["top", "right"]].set_visible(False)


def add_arguments(command: ArgumentParser) -> None:
    """Add the arguments of ``qnumba accuracy``."""
    help_text = f"draw the errors against the bits ({', '.join(PICTURES)})"
    command.add_argument("--plot", metavar="PICTURE", type=_picture, help=help_text)


def _picture(path: str) -> str:
    """Return the path of a picture if one can be drawn there: measuring takes long."""
    if Path(path).suffix.lower() not in PICTURES:
        raise ArgumentTypeError(f"the name {path!r} must end in {' or '.join(PICTURES)}")
    if not Path(path).parent.is_dir():
        raise ArgumentTypeError(f"the directory of {path!r} does not exist; create it first")
    if find_spec("matplotlib") is None:
        raise ArgumentTypeError('a chart needs matplotlib: pip install "qnumba[plot]"')
    return path


def run_accuracy(args: Namespace) -> dict[str, Any]:
    """Measure everything for ``qnumba accuracy``; draw the chart if ``args.plot`` names one."""
    grid, presets = measure_grid(), measure_presets()
    if args.plot:
        plot(args.plot, grid)
    rows = [row._asdict() | {"scheme": str(row.scheme)} for row in [*grid, *presets]]
    return {"seed": SEED, "shape": list(SHAPE), "rows": rows, "plot": args.plot}


def show_accuracy(result: dict[str, Any]) -> str:
    """Return what ``run_accuracy`` measured as tables for a terminal."""
    found = [Measurement(**row | {"scheme": Scheme.parse(row["scheme"])}) for row in result["rows"]]
    grid = [row for row in found if row.group not in RULES]
    parts = [
        text
        for data in dict.fromkeys(row.data for row in grid)
        for text in (f"{data}:", _lines(pivot([row for row in grid if row.data == data], "name")))
    ]
    parts += ["presets:", _lines(pivot([row for row in found if row.group in RULES], "data"))]
    return "\n\n".join(parts)


def _levels() -> Iterator[tuple[str, str]]:
    """Yield every level together with every scale dtype it can have."""
    for level, arguments in LEVELS.items():
        for scale in TWO_LEVEL_SCALES if "tensor_scale" in arguments else SCALES:
            yield level, scale


def _measure(
    data: str, x: NDArray[Any], name: str, group: str, scheme: Scheme, **options: Any
) -> Measurement:
    bits = quantize(x, scheme, **options).bits_per_value
    return Measurement(data, name, group, scheme, bits, relative_error(x, scheme, **options))


def _overhead(row: Measurement) -> float:
    """Return the bits of a value that are not those of its code."""
    packed = STORES[row.scheme.store].word_bits
    return row.bits - (VALUES[row.scheme.value].bits if packed else 8)


def _lines(table: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    )
