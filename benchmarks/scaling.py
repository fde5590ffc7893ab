"""Time against the size of an array, from 64 values to 1 GiB, and against threads.

python benchmarks/scaling.py                         # a table, and charts under build/
python benchmarks/scaling.py --up-to 64MiB
"""

from __future__ import annotations

import argparse
from pathlib import Path

from qnumba.bench.cases import CACHED, LARGE, parse_size, size_text
from qnumba.bench.chart import Panel, lines
from qnumba.bench.measure import available_cores
from qnumba.bench.processes import Request, run

CASES = [
    "affine int8",
    "int8, block 32, F16",
    "int4, block 32, F16",
    "MXFP4",
    "NVFP4",
    "NVFP4 to float32",
]
SMALLEST, LARGEST, STEP = 256, 2**30, 4  # bytes of floats; 256 are 64 values
SECONDS = 0.1
BUILD = Path(__file__).resolve().parents[1] / "build"


def by_size(largest=LARGEST):
    """Return the figures of the cases for every size, on one core."""
    sizes = []
    size = SMALLEST
    while size <= largest:
        sizes.append(size)
        size *= STEP
    return list(run(Request(CASES, sizes, seconds=SECONDS)))


def by_threads():
    """Return the figures of the cases for every number of threads up to that of cores."""
    return [
        row
        for threads in range(1, len(available_cores()) + 1)
        for row in run(Request(CASES, [CACHED, LARGE], threads, SECONDS))
    ]


def pictures(sizes, threads):
    """Return the charts of both as SVG, by name."""
    times = _series(sizes, "nbytes", lambda row: row["seconds"] * 1e6)
    panels = [
        Panel(times, "time, one thread", "bytes of floats", "us"),
        Panel(_series(sizes, "nbytes", _speed), "speed, one thread", "bytes of floats", "GB/s"),
    ]
    several = [
        Panel(_series(rows, "threads", _speed), size_text(nbytes), "threads", "GB/s", "linear")
        for nbytes in (CACHED, LARGE)
        for rows in [[row for row in threads if row["nbytes"] == nbytes]]
    ]
    return {"scaling": lines(panels), "threads": lines(several)}


def _speed(row):
    return row["gb_per_s"]


def _series(rows, axis, figure):
    """Return the points of every case, and of the roofline of the first."""
    series = {
        name: [(row[axis], figure(row)) for row in rows if row["case"] == name] for name in CASES
    }
    first = [row for row in rows if row["case"] == CASES[0]]
    limits = [
        row | {"seconds": row["seconds"] * row["ratio"], "gb_per_s": row["roofline_gb_per_s"]}
        for row in first
    ]
    return series | {"roofline r4w1": [(row[axis], figure(row)) for row in limits]}


def main():
    """Print the figures and draw them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--up-to", type=parse_size, default=LARGEST)
    largest = parser.parse_args().up_to
    sizes, threads = by_size(largest), by_threads()
    for row in [*sizes, *threads]:
        print(
            f"{row['case']:<22} {size_text(row['nbytes']):>8} {row['threads']:>2} threads "
            f"{row['seconds'] * 1e6:>11.1f} us {row['gb_per_s']:>6.1f} GB/s {row['ratio']:>5.2f}"
        )
    BUILD.mkdir(exist_ok=True)
    for name, svg in pictures(sizes, threads).items():
        (BUILD / f"{name}.svg").write_text(svg, encoding="utf-8")
        print(f"wrote build/{name}.svg")


if __name__ == "__main__":
    main()
