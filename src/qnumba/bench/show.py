"""Figures for people: the cells of a table, and a page of HTML."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from qnumba.bench.cases import CASES, size_text
from qnumba.bench.processes import OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qnumba.bench.processes import Row

HEAD = (
    "case", "size", "threads", "by", "GB/s", "roofline", "GB/s", "ratio", "to reach", "SNR dB",
    "qnumba's lead",
)  # fmt: skip
ALIGN = "<>><><>>>>>"
STYLE = """\
body { font: 14px system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
td, th { padding: .15em .7em; text-align: right; border-bottom: 1px solid #ddd }
td:nth-child(1), td:nth-child(4), td:nth-child(6) { text-align: left }
tr.short td:nth-child(8) { color: #b00; font-weight: bold }
"""


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Return rows by threads, size and case, qnumba first and then the fastest."""
    order = {name: number for number, name in enumerate(CASES)}
    return sorted(
        rows,
        key=lambda row: (
            row["threads"],
            row["nbytes"],
            order[row["case"]],
            row["library"] != OURS,
            row["seconds"],
        ),
    )


def cells(row: Row) -> tuple[str, ...]:
    """Return a row as texts, under ``HEAD``."""
    lead = row["qnumba_times_as_fast"]
    return (
        row["case"],
        size_text(row["nbytes"]),
        str(row["threads"]),
        row["library"],
        f"{row['gb_per_s']:.1f}",
        row["roofline"],
        f"{row['roofline_gb_per_s']:.1f}",
        f"{row['ratio']:.2f}",
        _number(row["target"], ".2f"),
        _number(row["snr_db"], ".1f"),
        f"{lead:.2f}x" if lead else "",
    )


def _number(number: float | None, digits: str) -> str:
    return "" if number is None else f"{number:{digits}}"


def is_short(row: Row) -> bool:
    """Return whether a figure does not reach its target."""
    return row["target"] is not None and row["ratio"] < row["target"]


def about(result: dict[str, Any]) -> list[str]:
    """Return the lines that say where figures come from."""
    machine, versions = result["machine"], result["versions"]
    return [
        f"{machine['cpu']}, {machine['cores']} core(s), {machine['system']}",
        ", ".join(f"{name} {number}" for name, number in versions.items()),
        *result["notes"],
    ]


def page(result: dict[str, Any], charts: Sequence[str]) -> str:
    """Return a result as a page of HTML.

    Parameters
    ----------
    result : dict
        What ``qnumba bench --json`` prints.
    charts : sequence of str
        SVG pictures.
    """
    rows = [
        f"<tr{' class=short' if is_short(row) else ''}>{_line('td', cells(row))}</tr>"
        for row in result["rows"]
    ]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>qnumba bench</title>',
        f"<style>\n{STYLE}</style></head><body><h1>qnumba bench</h1>",
        *(f"<p>{html.escape(line)}</p>" for line in about(result)),
        *charts,
        f"<table><tr>{_line('th', HEAD)}</tr>",
        *rows,
        "</table></body></html>\n",
    ]
    return "\n".join(parts)


def _line(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)
