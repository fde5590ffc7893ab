"""Measure everything that docs/benchmarks.md says, and write it there.

    python benchmarks/page.py                    # the parts, printed: about 10 minutes
    python benchmarks/page.py --write            # into docs/benchmarks.md and docs/img
    python benchmarks/page.py --write calls      # some parts anew; the others stay

Wants a quiet machine with two cores or more. Other libraries take part where they are installed. A
part stands between the lines ``<!-- bench: NAME -->`` and ``<!-- end -->`` of the page.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import calls
import cliffs
import scaling

from qnumba.bench.cases import CACHED, CASES, FLOOR, LARGE, size_text
from qnumba.bench.chart import speeds
from qnumba.bench.machine import machine, versions
from qnumba.bench.measure import available_cores
from qnumba.bench.processes import OURS, chosen_peers, run_all
from qnumba.bench.show import in_order, is_short

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "benchmarks.md"
PART = re.compile(r"(<!-- bench: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
PLACES = {LARGE: "memory", CACHED: "cache"}
SECONDS = 0.3
TWO = 2
LARGE_LEAD = 10  # from which no fraction is shown


def table(head, rows):
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(figure, digits=".2f"):
    """Return a figure, or nothing where there is none."""
    return "" if figure is None else f"{figure:{digits}}"


def reached(row):
    """Return the ratio of a row, bold where it falls short."""
    return f"**{row['ratio']:.2f}**" if is_short(row) else f"{row['ratio']:.2f}"


def ours_of(rows, threads):
    """Return our rows with a number of threads, by case and size."""
    return {
        (row["case"], row["nbytes"]): row
        for row in rows
        if row["library"] == OURS and row["threads"] == threads
    }


def ratios(rows):
    """Return the table of ratios beside the targets, on one core."""
    ours, lines = ours_of(rows, 1), []
    for case in CASES.values():
        large, cached = ours[case.name, LARGE], ours[case.name, CACHED]
        lines.append(
            (
                case.name,
                f"`{case.scheme}`",
                case.roofline,
                number(case.target),
                reached(large),
                number(large["gb_per_s"], ".1f"),
                number(case.target_cached),
                reached(cached),
                number(cached["gb_per_s"], ".1f"),
                number(large["snr_db"], ".1f"),
            )
        )
    sizes = [
        text.format(size_text(nbytes))
        for nbytes in (LARGE, CACHED)
        for text in ("to reach, {}", "ratio", "GB/s")
    ]
    return table(("case", "scheme", "roofline", *sizes, "SNR dB"), lines)


def threads(rows):
    """Return the table of what two threads do."""
    one, two = ours_of(rows, 1), ours_of(rows, TWO)
    lines = [
        (
            name,
            reached(two[name, LARGE]),
            number(two[name, LARGE]["gb_per_s"], ".1f"),
            number(one[name, LARGE]["seconds"] / two[name, LARGE]["seconds"]),
            number(one[name, CACHED]["seconds"] / two[name, CACHED]["seconds"]),
        )
        for name in CASES
        if (name, LARGE) in two
    ]
    large, cached = size_text(LARGE), size_text(CACHED)
    head = ("case", f"ratio, {large}", "GB/s", f"faster than one, {large}", f"the same, {cached}")
    return table(head, lines) if lines else "Not measured: the process had one core.\n"


def peers(rows):
    """Return the table of how many times as fast qnumba is as other libraries."""
    groups = {}
    for row in sorted(rows, key=lambda row: row["qnumba_times_as_fast"] or 0):
        groups.setdefault((row["case"], row["nbytes"]), []).append(_lead(row))
    lines = [
        (case, *(", ".join(groups.get((case, nbytes), [""])[1:]) for nbytes in PLACES))
        for case in CASES
    ]
    lines = [line for line in lines if any(line[1:])]
    head = ("case", *map(size_text, PLACES))
    return table(head, lines) if lines else "No other library was installed.\n"


def _lead(row):
    """Return a library and how many times as fast qnumba is, bold where it is slower."""
    lead = row["qnumba_times_as_fast"]
    if lead is None:
        return ""
    text = f"{row['library']} {lead:.2f}" if lead < LARGE_LEAD else f"{row['library']} {lead:.0f}"
    return text if lead >= 1 else f"**{text}**"


def losses(rows):
    """Return the list of ratios not reached and of libraries that are faster."""
    short = [
        f"- {row['case']}, {size_text(row['nbytes'])}, {_threads(row)}: "
        f"{row['ratio']:.2f} of the roofline, {row['target']:.2f} wanted\n"
        for row in rows
        if is_short(row)
    ]
    beaten = [
        f"- {row['case']}, {size_text(row['nbytes'])}, {_threads(row)}: {row['library']} is "
        f"{1 / row['qnumba_times_as_fast']:.2f} times as fast\n"
        for row in rows
        if row["library"] != OURS and row["qnumba_times_as_fast"] < 1
    ]
    texts = (
        ("Ratios that are not reached:", short or ["- none\n"]),
        ("Libraries that are faster:", beaten or ["- none\n"]),
    )
    return "\n".join(f"{title}\n\n{''.join(found)}" for title, found in texts)


def _threads(row):
    return "one thread" if row["threads"] == 1 else f"{row['threads']} threads"


def measured_cases():
    """Return the parts and pictures of the table of cases."""
    libraries, _ = chosen_peers([])
    counts = list(range(1, min(TWO, len(available_cores())) + 1))
    found = list(run_all(list(CASES), [CACHED, LARGE], counts[:1], SECONDS, libraries))
    found += run_all(list(CASES), [CACHED, LARGE], counts[1:], SECONDS)
    rows = in_order([row for row in found if "note" not in row])
    about = machine()
    used = versions(library.package for library in libraries)
    names = ", ".join(f"{name} {text}" for name, text in used.items())
    notes = "".join(dict.fromkeys(f"- {row['note']}\n" for row in found if "note" in row))
    parts = {
        "machine": f"{about['cpu']}, {about['system']}; {names}.\n{notes and chr(10)}{notes}",
        "ratios": ratios(rows),
        "threads": threads(rows),
        "peers": peers([row for row in rows if row["threads"] == 1]),
        "losses": losses(rows),
    }
    pictures = {
        f"bench-{place}": speeds(
            [row for row in rows if (row["nbytes"], row["threads"]) == (nbytes, 1)],
            f"{size_text(nbytes)} of floats, one thread",
        )
        for nbytes, place in PLACES.items()
    }
    return parts, pictures


def measured_scaling():
    """Return the pictures of time against size and threads."""
    found = scaling.pictures(scaling.by_size(), scaling.by_threads())
    return {}, {f"bench-{name}": svg for name, svg in found.items()}


def measured_calls():
    """Return the table of what small calls cost."""
    lines = [
        (
            f"`{what}`" if "(" in what else what,
            f"{time:.2f} {unit}",
            f"{limit:g} {unit}" if limit else "",
        )
        for what, time, unit, limit in [*calls.tiny(), *calls.first()]
    ]
    return {"calls": table(("call", "time", "to be under"), lines)}, {}


def measured_cliffs():
    """Return the lists of the slowest combinations."""
    texts = []
    for group in cliffs.search():
        title = group.title.capitalize()
        rows = [
            (f"{one.ratio:.2f}", f"{one.speed:.1f}", one.form, f"`{one.name}`")
            for one in group.slowest
        ]
        texts.append(
            f"{title}: {group.below:,} of {group.count:,} below {FLOOR}.\n\n"
            + table(("ratio", "GB/s", "array", "scheme"), rows)
        )
    return {"cliffs": "\n".join(texts)}, {}


MEASURED = {
    "cases": measured_cases,
    "scaling": measured_scaling,
    "calls": measured_calls,
    "cliffs": measured_cliffs,
}


def main():
    """Measure, and print or write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", help=f"{', '.join(MEASURED)}; default: all")
    parser.add_argument("--write", action="store_true", help="put it into docs/")
    args = parser.parse_args()
    if unknown := set(args.what) - set(MEASURED):
        parser.error(f"{', '.join(unknown)} is none of {', '.join(MEASURED)}")
    for name in args.what or MEASURED:
        start = time.perf_counter()
        parts, pictures = MEASURED[name]()
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
        if args.write:
            write(parts, pictures)
        else:
            print(*(f"{part}:\n{text}" for part, text in parts.items()), sep="\n")


def write(parts, pictures):
    """Put parts and pictures into the documentation."""
    text = PAGE.read_text(encoding="utf-8")
    text = PART.sub(lambda found: found[1] + parts.get(found[2], found[3]) + found[4], text)
    PAGE.write_text(text, encoding="utf-8")
    for name, svg in pictures.items():
        (DOCS / "img" / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
