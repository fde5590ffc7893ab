"""The command that times every operation on this machine: ``qnumba bench``."""

from __future__ import annotations

from argparse import ArgumentTypeError
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qnumba.bench.cases import CACHED, LARGE, OPS, chosen, parse_size
from qnumba.bench.chart import charts
from qnumba.bench.processes import SECONDS, chosen_peers, run_all
from qnumba.bench.show import ALIGN, HEAD, about, cells, in_order, is_short, page
from qnumba.cli.show import count, progress, table
from qnumba.errors import SchemeError
from qnumba.io.files import atomic_write

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_bench(command: ArgumentParser) -> None:
    """Add the arguments of ``qnumba bench``."""
    command.add_argument(
        "--ops", nargs="+", default=[], metavar="OP", help=f"{', '.join(OPS)}, or names of cases"
    )
    command.add_argument(
        "--sizes",
        nargs="+",
        type=_size,
        default=[CACHED, LARGE],
        metavar="SIZE",
        help="bytes of floats, such as 64KiB (default: 1MiB 64MiB)",
    )
    command.add_argument(
        "--threads", nargs="+", type=_threads, default=[1], metavar="N", help="default: 1"
    )
    command.add_argument(
        "--peers",
        nargs="*",
        metavar="LIBRARY",
        help="measure other libraries too (default: all that are installed)",
    )
    command.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"for each case (default: {SECONDS})"
    )
    command.add_argument("--html", type=_page, metavar="FILE", help="write a page with charts")


def run_bench(args: Namespace) -> dict[str, Any]:
    """Measure what is asked for, beside the rooflines."""
    from qnumba.bench.machine import machine, versions  # noqa: PLC0415 - loads LLVM

    cases = [case.name for case in chosen(args.ops)]
    peers, missing = chosen_peers(args.peers)
    notes = [f"not installed: {', '.join(missing)}"] if missing else []
    rows = []
    total = len(cases) * sum(args.sizes) * len(args.threads)
    with progress(total, "measuring") as bar:
        for row in run_all(cases, args.sizes, args.threads, args.seconds, peers):
            if "note" in row:
                notes.append(row["note"])
                continue
            rows.append(row)
            bar.update(row["nbytes"] if row["qnumba_times_as_fast"] is None else 0)
    result = {
        "machine": machine(),
        "versions": versions(peer.package for peer in peers),
        "notes": list(dict.fromkeys(notes)),
        "rows": in_order(rows),
        "html": args.html,
    }
    if args.html:
        with atomic_write(args.html) as file:
            file.write(page(result, charts(result["rows"])).encode())
    return result


def show_bench(result: dict[str, Any]) -> str:
    """Write the table, without the columns that say nothing."""
    rows = [HEAD, *(cells(row) for row in result["rows"])]
    told = [number for number, column in enumerate(zip(*rows[1:], strict=True)) if any(column)]
    shown = [[row[number] for number in told] for row in rows]
    short = sum(is_short(row) for row in result["rows"])
    parts = [
        *about(result),
        "",
        table(shown, "".join(ALIGN[number] for number in told)),
        "",
        f"{count(short, 'figure')} below the ratio to reach",
    ]
    return "\n".join(parts + ([f"wrote {result['html']}"] if result["html"] else []))


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except SchemeError as error:
        raise ArgumentTypeError(str(error)) from error


def _threads(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is no number of threads; write 1 or 2")
    return int(text)


def _page(path: str) -> str:
    """Return the path of a page if it can be made: measuring takes long."""
    if not Path(path).parent.is_dir():
        raise ArgumentTypeError(f"the directory of {path!r} does not exist; create it first")
    if find_spec("matplotlib") is None:
        raise ArgumentTypeError('charts need matplotlib: pip install "qnumba[plot]"')
    return path
