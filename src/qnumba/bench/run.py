"""Measure in processes of their own: one for each number of threads and family of other libraries.

Thread pools that spin slow each other by a factor of a thousand, so no process has two kinds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numba

from qnumba.bench.cases import CASES
from qnumba.bench.measure import call_of, check, interleaved, numbers, snr, spread, take_cores
from qnumba.bench.rooflines import roofline
from qnumba.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from qnumba.bench.cases import Case
    from qnumba.bench.peers import Peer

OURS, ROOFLINE = "qnumba", "roofline"
POOLS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Request(NamedTuple):
    """What one process measures: names of cases, bytes of floats, and which other libraries."""

    cases: list[str]
    sizes: list[int]
    threads: int = 1
    seconds: float = 0.3
    family: str | None = None
    peers: list[str] | None = None


Row = dict[str, Any]


def measured(request: Request) -> Iterator[Row]:
    """Run every job of a request, and yield its figures.

    Yields
    ------
    dict
        One for each case, size and library. Times are seconds, sizes bytes, speeds GB/s of the
        floating-point side, the ratio is that of the roofline's time to the library's.

    Raises
    ------
    DataError
        If bits differ from the reference, or there are fewer cores than threads.
    """
    cores = take_cores(request.threads)
    numba.set_num_threads(request.threads)
    others = _others(request)
    cases = [CASES[name] for name in request.cases]
    for case in cases:
        check(case)
    for nbytes in request.sizes:
        for case in cases:
            x = numbers(case.shape(nbytes), case.dtype)
            result, times = _timed(case, x, request, others, cores)
            yield from _rows(case, x, nbytes, request.threads, times, snr(x, result))


def _timed(
    case: Case, x: NDArray[Any], request: Request, others: Sequence[Peer], cores: list[int]
) -> tuple[Any, dict[str, float]]:
    """Return what a case makes of an array, and the times of all who do it and of the roofline."""
    ours = call_of(case, x)
    calls: dict[str, Callable[[], Any]] = {
        ROOFLINE: roofline(case.roofline, x, request.threads),
        OURS: ours,
    }
    calls |= {
        peer.name: peer.jobs[case.peer](x, request.threads)
        for peer in others
        if case.peer is not None and case.peer in peer.jobs
    }
    for call in calls.values():  # which starts the threads
        call()
    spread(cores)
    return ours(), interleaved(calls, request.seconds * len(calls) / 2)


def _rows(
    case: Case,
    x: NDArray[Any],
    nbytes: int,
    threads: int,
    times: dict[str, float],
    decibels: float | None,
) -> Iterator[Row]:
    """Yield the figures of everybody who did a case."""
    limit = times.pop(ROOFLINE)
    for who, seconds in times.items():
        yield {
            "case": case.name,
            "op": case.op,
            "scheme": case.scheme,
            "dtype": case.dtype,
            "shape": list(x.shape),
            "nbytes": nbytes,
            "threads": threads,
            "library": who,
            "seconds": seconds,
            "gb_per_s": x.nbytes / seconds / 1e9,
            "roofline": case.roofline,
            "roofline_gb_per_s": x.nbytes / limit / 1e9,
            "ratio": limit / seconds,
            "target": case.target_at(nbytes) if who == OURS else None,
            "snr_db": decibels if who == OURS else None,
            "times_slower": None if who == OURS else seconds / times[OURS],
        }


def _others(request: Request) -> list[Peer]:
    """Return the libraries that take part in a request."""
    if request.family is None:
        return []
    from qnumba.bench.peers import PEERS  # noqa: PLC0415 - only who asks for others needs them

    names = request.peers or ()
    return [peer for peer in PEERS if peer.family == request.family and peer.name in names]


def run(request: Request) -> Iterator[Row]:
    """Measure a request in a process of its own, and yield its rows as they come.

    Raises
    ------
    DataError
        If the process refused, or ended before it was done.
    """
    command = [sys.executable, "-m", "qnumba.bench", json.dumps(request)]
    environment = os.environ | dict.fromkeys(POOLS, str(request.threads))
    with subprocess.Popen(  # noqa: S603 - this package, with the Python that runs it
        command, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment
    ) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        for line in process.stdout:
            row = json.loads(line)
            if "refused" in row:
                raise DataError(row["refused"])
            yield row
    if process.returncode:
        who = f"the libraries {', '.join(request.peers or ())}" if request.family else OURS
        raise DataError(
            f"the process that measured {who} ended with status {process.returncode}; what it said "
            "stands above"
        )


def answer(argument: str) -> Iterator[str]:
    """Yield the lines that a process of ``run`` writes: rows as JSON, or why there are none."""
    try:
        for row in measured(Request(*json.loads(argument))):
            yield json.dumps(row)
    except DataError as error:
        yield json.dumps({"refused": str(error)})
