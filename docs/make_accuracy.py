"""Write the tables and the chart of the page on accuracy: python docs/make_accuracy.py.

A table stands between the lines ``<!-- accuracy: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from pathlib import Path

from make_tables import table

from qnumba.accuracy import measure_grid, measure_presets, pivot, plot

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "accuracy.md"
CHART = DOCS / "img" / "accuracy.svg"
TABLE = re.compile(r"(<!-- accuracy: ([\w. ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def tables() -> dict[str, str]:
    """Return every table of the page by its name."""
    grid = measure_grid()
    by_spread = {
        data.rpartition(" ")[2]: pivot([row for row in grid if row.data == data], "name")
        for data in dict.fromkeys(row.data for row in grid)
    }
    found = {f"spread {spread}": rows for spread, rows in by_spread.items()}
    found["presets"] = pivot(measure_presets(), "data")
    return {name: table(rows[0], rows[1:]) for name, rows in found.items()}


def filled(text: str) -> str:
    """Return a page with every table written anew."""
    parts = tables()
    return TABLE.sub(lambda found: found[1] + parts[found[2]] + found[3], text)


def main() -> None:
    """Fill the tables and draw the chart."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    CHART.parent.mkdir(exist_ok=True)
    plot(CHART)
    print(f"wrote {PAGE.name} and {CHART.name}")


if __name__ == "__main__":
    main()
