"""The table of what becomes of every array of a tree, and why."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from qnumba.scheme import Scheme

HEAD = ("path", "shape", "dtype", "bytes", "quantized", "scheme, or why not")
LONGEST = 90  # characters of a reason in the table


class Row(NamedTuple):
    """What becomes of one array.

    ``nbytes`` are its bytes and ``quantized_nbytes`` those afterwards; both are 0 where the array
    stands in the tree twice and was counted already. ``scheme`` is None where it is left as it is.
    ``reason`` says why, and is empty where there is nothing to say.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    quantized_nbytes: int
    scheme: Scheme | None
    reason: str = ""


@dataclass(frozen=True, repr=False)
class Summary:
    """What becomes of the arrays of a tree; it prints as a table and iterates over its rows.

    Attributes
    ----------
    rows : tuple of Row
        One for each array, in the order of the tree.
    unused : tuple of str
        The patterns that matched no array: often a typing error.
    """

    rows: tuple[Row, ...]
    unused: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Row]:
        """Go through the rows."""
        return iter(self.rows)

    def __len__(self) -> int:
        """Count the arrays."""
        return len(self.rows)

    @property
    def quantized(self) -> tuple[Row, ...]:
        """The rows of arrays that become codes."""
        return tuple(row for row in self if row.scheme is not None)

    @property
    def left(self) -> tuple[Row, ...]:
        """The rows of arrays that stay as they are."""
        return tuple(row for row in self if row.scheme is None)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays as they are."""
        return sum(row.nbytes for row in self)

    @property
    def quantized_nbytes(self) -> int:
        """Bytes of all arrays afterwards, those that are left included."""
        return sum(row.quantized_nbytes for row in self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts, lists, numbers and text, fit for JSON."""
        rows = [
            row._asdict()
            | {"shape": list(row.shape), "scheme": None if row.scheme is None else str(row.scheme)}
            for row in self
        ]
        return {
            "arrays": rows,
            "nbytes": self.nbytes,
            "quantized_nbytes": self.quantized_nbytes,
            "unused": list(self.unused),
        }

    def __repr__(self) -> str:
        """Return the table, and the totals below it."""
        lines = [HEAD, *(_cells(row) for row in self)]
        return "\n".join([aligned(lines, {"bytes", "quantized"}), *self._totals()])

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        lines = ["".join(f"<th>{name}</th>" for name in HEAD)]
        lines += ["".join(f"<td>{html.escape(c)}</td>" for c in _cells(row)) for row in self]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table>{body}</table><p>{html.escape('; '.join(self._totals()))}</p>"

    def _totals(self) -> list[str]:
        before, after = self.nbytes, self.quantized_nbytes
        ratio = f", {before / after:.3g} times smaller" if after else ""
        counts = f"{len(self.quantized)} of {len(self)} arrays quantized"
        lines = [f"{counts}, {before:,} -> {after:,} bytes{ratio}"]
        if self.unused:
            lines.append(f"patterns that matched no array: {', '.join(map(repr, self.unused))}")
        return lines


def _cells(row: Row) -> tuple[str, ...]:
    reason = row.reason if len(row.reason) <= LONGEST else row.reason[: LONGEST - 3] + "..."
    said = [str(row.scheme) if row.scheme is not None else "-", reason]
    shape = "x".join(map(str, row.shape)) or "()"
    sizes = f"{row.nbytes:,}", f"{row.quantized_nbytes:,}"
    return (row.path, shape, row.dtype, *sizes, ": ".join(part for part in said if part))


def aligned(lines: Sequence[Sequence[str]], numbers: Collection[str]) -> str:
    """Lay out lines of text in columns; those whose head is in ``numbers`` end at the right."""
    head = lines[0]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = [">" if name in numbers else "<" for name in head]
    return "\n".join(
        "  ".join(map(format, line, map("{}{}".format, sides, widths))).rstrip() for line in lines
    )
