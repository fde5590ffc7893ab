"""What a process that measures does: check bits, time, and report row by row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numba

from qnumba.bench.cases import CACHED, CASES
from qnumba.bench.measure import (
    call_of,
    check,
    check_job,
    interleaved,
    numbers,
    snr,
    spread,
    take_cores,
)
from qnumba.bench.processes import OURS, Request
from qnumba.bench.rooflines import roofline
from qnumba.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from qnumba.bench.cases import Case
    from qnumba.bench.peers import Peer
    from qnumba.bench.processes import Row

ROOFLINE = "roofline"


def answer(argument: str) -> Iterator[str]:
    """Yield the lines that answer a request: rows as JSON, or why there are none."""
    try:
        for row in measured(Request(*json.loads(argument))):
            yield json.dumps(row)
    except DataError as error:
        yield json.dumps({"refused": str(error)})


def measured(request: Request) -> Iterator[Row]:
    """Run every job of a request, and yield its figures.

    Yields
    ------
    dict
        One for each case, size and library. Times are seconds, sizes bytes, speeds GB/s of the
        floating-point side, the ratio is that of the roofline's time to the library's. What could
        not be measured is a ``note``.

    Raises
    ------
    DataError
        If bits differ from the reference, or there are fewer cores than threads.
    """
    cores = take_cores(request.threads)
    numba.set_num_threads(request.threads)
    cases = [CASES[name] for name in request.cases]
    for case in cases:
        check(case)
    for nbytes in request.sizes:
        for case in cases:
            yield from _figures(case, nbytes, request, cores)


def _figures(case: Case, nbytes: int, request: Request, cores: list[int]) -> Iterator[Row]:
    """Time a case with one size, by all who can do it and beside the roofline."""
    x = numbers(case.shape(nbytes), case.dtype)
    ours = call_of(case, x)
    calls = {ROOFLINE: roofline(case.roofline, x, request.threads), OURS: ours}
    decibels = {OURS: snr(x, ours())}
    for peer in _guests(request, case):
        try:
            calls[peer.name], decibels[peer.name] = _prepared(peer, case, x, request.threads)
        except Exception as error:  # noqa: BLE001, PERF203 - ours is measured
            why = f"{type(error).__name__}: {error}"
            yield {"note": f"{peer.name} did not do {case.name}: {why}"}
    for call in calls.values():  # which starts the threads
        call()
    spread(cores)
    times = interleaved(calls, request.seconds * len(calls) / 2)
    for who, loss in decibels.items():
        yield _row(case, x, nbytes, request.threads, who, times, loss)


def _row(
    case: Case,
    x: NDArray[Any],
    nbytes: int,
    threads: int,
    who: str,
    times: dict[str, float],
    decibels: float | None,
) -> Row:
    """Return the figures of one library."""
    seconds, limit, is_ours = times[who], times[ROOFLINE], who == OURS
    return {
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
        "target": case.target_at(nbytes) if is_ours else None,
        "snr_db": decibels,
        "qnumba_times_as_fast": None if is_ours else seconds / times[OURS],
    }


def _guests(request: Request, case: Case) -> list[Peer]:
    """Return the libraries of a request that can do a case."""
    if request.family is None:
        return []
    from qnumba.bench.peers import PEERS  # noqa: PLC0415 - only who asks for others needs them

    return [peer for peer in PEERS if peer.name in request.peers and case.peer in peer.jobs]


def _prepared(
    peer: Peer, case: Case, x: NDArray[Any], threads: int
) -> tuple[Callable[[], Any], float | None]:
    """Return another library's call, and the SNR in dB that its result has on a small array."""
    prepare, small = peer.jobs[case.peer or ""], numbers(case.shape(CACHED), case.dtype)
    decibels = check_job(prepare(small, threads), case, small)
    call = prepare(x, threads).call
    call()
    return call, decibels
