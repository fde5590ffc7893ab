"""Compare the speed reached on this machine with the speed wanted, and say what falls short.

    python benchmarks/gates.py                      # one core
    python benchmarks/gates.py --threads 1 2        # and two: 1.7 times as fast from the cache
    python benchmarks/gates.py --ops encode --sizes 1MiB
    python benchmarks/gates.py --strict             # status 1 if anything falls short

``taskset`` chooses the cores. The table of cases and ratios is qnumba.bench.cases.
"""

from __future__ import annotations

import argparse

from qnumba.bench.cases import CACHED, LARGE, chosen, parse_size, size_text
from qnumba.bench.processes import Request, run

TWICE = 1.7  # how many times as fast two threads are to be, from the cache


def speedups(rows):
    """Yield how much faster each case is from the cache with more threads than one."""
    single = {row["case"]: row for row in rows if (row["nbytes"], row["threads"]) == (CACHED, 1)}
    for row in rows:
        if row["nbytes"] == CACHED and row["threads"] > 1 and row["case"] in single:
            yield row, single[row["case"]]["seconds"] / row["seconds"]


def judged(row):
    """Print a row; return whether it falls short."""
    target = row["target"]
    is_short = target is not None and row["ratio"] < target
    wanted = "" if target is None else f"{target:.2f}"
    print(
        f"{row['case']:<32} {size_text(row['nbytes']):>7} {row['threads']:>2} "
        f"{row['gb_per_s']:>7.1f} {row['roofline']:>8} {row['roofline_gb_per_s']:>6.1f} "
        f"{row['ratio']:>6.2f} {wanted:>5} {'SHORT' if is_short else ''}",
        flush=True,
    )
    return is_short


def main():
    """Print every figure, then how many fall short."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", nargs="+", default=[], help="operations or cases; default: all")
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[CACHED, LARGE])
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--seconds", type=float, default=0.3, help="for each figure")
    parser.add_argument("--strict", action="store_true", help="end with 1 if anything is short")
    args = parser.parse_args()
    cases = [case.name for case in chosen(args.ops)]
    print(
        f"{'case':<32} {'size':>7} {'th':>2} {'GB/s':>7} {'roofline':>8} {'GB/s':>6} "
        f"{'ratio':>6} {'want':>5}"
    )
    rows, short = [], 0
    for threads in args.threads:
        for row in run(Request(cases, args.sizes, threads, args.seconds)):
            rows.append(row)
            short += judged(row)
    for row, factor in speedups(rows):
        is_short = factor < TWICE
        short += is_short
        print(
            f"{row['case']:<32} {row['threads']} threads: {factor:.2f} times as fast "
            f"(want {TWICE}) {'SHORT' if is_short else ''}"
        )
    print(f"{short} of {len(rows)} figures fall short")
    return bool(args.strict and short)


if __name__ == "__main__":
    raise SystemExit(main())
