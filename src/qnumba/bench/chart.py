"""Charts of a benchmark as SVG, drawn with matplotlib."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

from qnumba.bench.cases import size_text
from qnumba.bench.processes import OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from qnumba.bench.processes import Row

LOOKS: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "qnumba",  # the same ids in every file
}
BLUE, RED, ORANGE, GRAY = "#4878a8", "#c44e52", "#dd8452", "#555555"


class Panel(NamedTuple):
    """One diagram: series of points by name, what stands beside them, and the kind of axes."""

    series: dict[str, list[tuple[float, float]]]
    title: str
    xlabel: str
    ylabel: str
    scale: str = "log"


def charts(rows: Sequence[Row]) -> list[str]:
    """Return one chart for each number of threads and size of a result."""
    groups: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["threads"], row["nbytes"]), []).append(row)
    return [
        speeds(group, f"{size_text(nbytes)} of floats, {threads} thread{'s' * (threads > 1)}")
        for (threads, nbytes), group in groups.items()
    ]


def speeds(rows: Sequence[Row], title: str) -> str:
    """Draw the speed of every case as a bar, beside its roofline, its target and its peers.

    Parameters
    ----------
    rows : sequence of dict
        Of one size and number of threads.
    title : str
        What stands above.

    Returns
    -------
    str
        The picture as SVG.
    """
    ours = {row["case"]: row for row in rows if row["library"] == OURS}
    places = {name: place for place, name in enumerate(ours)}
    figure, (ax,) = _figure(9, 1.2 + 0.21 * len(ours))
    ax.barh(
        list(places.values()), [row["gb_per_s"] for row in ours.values()], color=BLUE, label=OURS
    )
    limits = [(row["roofline_gb_per_s"], places[name]) for name, row in ours.items()]
    _marks(ax, limits, "roofline", marker="|", color="black", s=90)
    wanted = [
        (row["target"] * row["roofline_gb_per_s"], places[name])
        for name, row in ours.items()
        if row["target"]
    ]
    _marks(ax, wanted, "to reach", marker="|", color=RED, s=50)
    others = [(row["gb_per_s"], places[row["case"]]) for row in rows if row["library"] != OURS]
    _marks(ax, others, "other libraries", marker="o", color=ORANGE, s=12)
    ax.set_yticks(list(places.values()), list(places))
    ax.invert_yaxis()
    ax.margins(y=0.01)
    ax.set(title=title, xlabel="GB/s of the floating-point side", xlim=(0, None))
    ax.legend(loc="lower right", frameon=False)
    return svg(figure)


def lines(panels: Sequence[Panel]) -> str:
    """Draw panels of lines side by side; names with "roofline" are dashed.

    Returns
    -------
    str
        The picture as SVG.
    """
    figure, axes = _figure(4.2 * len(panels) + 2.2, 3.8, len(panels))
    for ax, panel in zip(axes, panels, strict=True):
        for name, points in panel.series.items():
            style = {"color": GRAY, "linestyle": "--"} if "roofline" in name else {"marker": "."}
            ax.plot(*zip(*points, strict=True), label=name, **style)
        ax.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
        ax.set(xscale=panel.scale, yscale=panel.scale)
        if panel.scale == "linear":
            ax.locator_params(axis="x", integer=True)
            ax.set_ylim(bottom=0)
        ax.grid(color="#dddddd", lw=0.5)
    axes[-1].legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return svg(figure)


def svg(figure: Figure) -> str:
    """Return a figure as SVG that is the same each time, and stretches with its page."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    file = io.StringIO()
    with mpl.rc_context(LOOKS):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()[file.getvalue().index("<svg") :]


def _figure(width: float, height: float, panels: int = 1) -> tuple[Figure, Any]:
    """Return a figure and the axes of its panels, without a window."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        message = 'a chart needs matplotlib: pip install "qnumba[plot]"'
        raise ImportError(message) from error
    with mpl.rc_context(LOOKS):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(1, panels, squeeze=False)[0]


def _marks(ax: Any, points: Sequence[tuple[float, int]], label: str, **looks: Any) -> None:
    """Draw points, if there are any."""
    if points:
        ax.scatter(*zip(*points, strict=True), label=label, zorder=3, **looks)
