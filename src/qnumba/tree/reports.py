"""The report over a tree: what each of its arrays lost."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qnumba.errors import QuantizationError, SchemeError
from qnumba.qarray import QArray
from qnumba.report import report
from qnumba.tree.choice import named
from qnumba.tree.summary import aligned
from qnumba.tree.walk import leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = ("path", "scheme", "bits", "SNR dB", "relative", "largest", "clipped", "dead blocks")
NUMBERS = set(HEAD[2:])
FIGURES = {"bits_per_value": ".4g", "snr": ".1f", "relative_rms": ".3g", "max_error": ".3g"}


@dataclass(frozen=True, repr=False)
class TreeReport:
    """What the arrays of a tree lost; it prints as a table and iterates over paths.

    Attributes
    ----------
    figures : dict of str to dict
        For each path the figures of ``qnumba.report``, as its ``to_dict()`` gives them.
    """

    figures: dict[str, dict[str, Any]]

    def __getitem__(self, path: str) -> dict[str, Any]:
        """Return the figures of one array."""
        return self.figures[path]

    def __iter__(self) -> Iterator[str]:
        """Go through the paths."""
        return iter(self.figures)

    def __len__(self) -> int:
        """Count the arrays."""
        return len(self.figures)

    @property
    def worst(self) -> tuple[str, ...]:
        """The paths, that of the lowest signal to noise ratio first."""
        return tuple(sorted(self.figures, key=self._quality))

    def _quality(self, path: str) -> float:
        """Return what grows with the signal to noise ratio; an infinite error has no figure."""
        relative = self.figures[path]["relative_rms"]
        return -math.inf if relative is None else -float(relative)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures by path, fit for JSON."""
        return dict(self.figures)

    def __repr__(self) -> str:
        """Return the table, and the totals below it."""
        lines = [HEAD, *(_cells(path, found) for path, found in self.figures.items())]
        return f"{aligned(lines, NUMBERS)}\n{self._totals()}"

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        lines = ["".join(f"<th>{name}</th>" for name in HEAD)]
        for path, found in self.figures.items():
            cells = (html.escape(cell) for cell in _cells(path, found))
            lines.append("".join(f"<td>{cell}</td>" for cell in cells))
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table>{body}</table><p>{html.escape(self._totals())}</p>"

    def _totals(self) -> str:
        sizes = [math.prod(found["shape"]) for found in self.figures.values()]
        bits = [found["bits_per_value"] for found in self.figures.values()]
        total = sum(size * each for size, each in zip(sizes, bits, strict=True) if size)
        mean = f", {total / sum(sizes):.4g} bits per value" if sum(sizes) else ""
        return f"{len(self)} arrays, {sum(sizes):,} values{mean}"


def report_tree(params: Any, quantized: Any) -> TreeReport:
    """Measure what each array of a tree lost.

    Parameters
    ----------
    params : tree
        What was quantized.
    quantized : tree
        What ``quantize_tree`` made of it. Arrays that it left are not in the report.

    Returns
    -------
    TreeReport

    Raises
    ------
    SchemeError
        If the trees do not fit: a path leads nowhere in ``params``, or to another shape.
    QuantizedTypeError
        If a path leads to something that is no array of numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from qnumba.tree import quantize_tree
    >>> tree = {"w": np.linspace(-1, 1, 64, dtype=np.float32)}
    >>> report_tree(tree, quantize_tree(tree, "int8"))
    path  scheme  bits  SNR dB  relative  largest  clipped  dead blocks
    w     Q8S      8.5    48.3   0.00385  0.00387        0            0
    1 arrays, 64 values, 8.5 bits per value
    """
    given = dict(leaves(params))
    figures = {}
    for path, q in leaves(quantized):
        if not isinstance(q, QArray):
            continue
        if path not in given:
            fix = "give the tree that was quantized"
            message = f"{path}: the tree given has nothing there; {fix}"
            raise SchemeError(message, field="params", value=path, fix=fix)
        try:
            figures[path] = report(given[path], q).to_dict()
        except QuantizationError as error:
            raise named(error, path) from error
    return TreeReport(figures)


def _cells(path: str, found: dict[str, Any]) -> tuple[str, ...]:
    return (
        path,
        found["scheme"],
        *(
            "-" if found[name] is None else format(found[name], form)
            for name, form in FIGURES.items()
        ),
        f"{found['clipped']:,}",
        f"{found['dead_blocks']:,}",
    )
