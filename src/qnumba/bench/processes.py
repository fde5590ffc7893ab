"""Start the processes that measure: one for each number of threads and family of other libraries.

Thread pools that spin slow each other by a factor of a thousand, so no process has two kinds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from qnumba.bench.cases import CASES
from qnumba.errors import DataError, SchemeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from qnumba.bench.peers import Peer

Row = dict[str, Any]

OURS = "qnumba"
POOLS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SECONDS = 0.3  # for the figures of a case of one size


class Request(NamedTuple):
    """What one process measures.

    Attributes
    ----------
    cases : list of str
        Names of cases.
    sizes : list of int
        Bytes of the floating-point side.
    threads : int
        How many.
    seconds : float
        How long each case of each size is repeated, together with its roofline.
    family : str or None
        The family of other libraries that the process may load; None: it loads none.
    peers : list of str
        The names of those that take part.
    """

    cases: list[str]
    sizes: list[int]
    threads: int = 1
    seconds: float = SECONDS
    family: str | None = None
    peers: list[str] = []  # noqa: RUF012 - nobody changes it


def run_all(
    cases: Sequence[str],
    sizes: Sequence[int],
    threads: Sequence[int],
    seconds: float = SECONDS,
    peers: Sequence[Peer] = (),
) -> Iterator[Row]:
    """Measure cases with every number of threads, and then with every family of other libraries.

    Yields
    ------
    dict
        The figures that ``qnumba.bench.run.measured`` makes, or a ``note`` on what has none.

    Raises
    ------
    DataError
        If bits differ from the reference, or there are fewer cores than threads.
    """
    families = dict.fromkeys(peer.family for peer in peers)
    for count in threads:
        request = Request(list(cases), list(sizes), count, seconds)
        yield from run(request)
        for family in families:
            members = [peer for peer in peers if peer.family == family]
            jobs = {job for peer in members for job in peer.jobs}
            request = request._replace(
                cases=[name for name in cases if CASES[name].peer in jobs],
                family=family,
                peers=[peer.name for peer in members],
            )
            yield from _guests(request)


def _guests(request: Request) -> Iterator[Row]:
    """Yield what other libraries reach; whatever they do, the figures of qnumba stand."""
    try:
        yield from (row for row in run(request) if row.get("library") != OURS)
    except DataError as error:
        yield {"note": str(error)}


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
        for line in process.stdout or ():
            row = json.loads(line)
            if "refused" in row:
                raise DataError(row["refused"])
            yield row
    if process.returncode:
        raise DataError(
            f"the process that measured {', '.join(request.peers) or OURS} ended with status "
            f"{process.returncode}; what it said stands above"
        )


def chosen_peers(names: Sequence[str] | None) -> tuple[list[Peer], list[str]]:
    """Return the other libraries to measure, and those of them that are not installed.

    Parameters
    ----------
    names : sequence of str or None
        Names as ``qnumba.bench.peers`` has them, or of packages; none of them: all that are
        installed. None: no library.

    Raises
    ------
    SchemeError
        If a name is not known.
    """
    if names is None:
        return [], []
    from qnumba.bench.peers import PEERS  # noqa: PLC0415 - only who asks for others needs them

    known = {word for peer in PEERS for word in (peer.name, peer.package)}
    for name in names:
        if name not in known:
            fix = f"give some of {', '.join(peer.name for peer in PEERS)}"
            message = f"{name!r} is no library that takes part in the benchmark; {fix}"
            raise SchemeError(message, field="peers", value=name, fix=fix)
    wanted = [peer for peer in PEERS if not names or {peer.name, peer.package} & set(names)]
    here = [peer for peer in wanted if find_spec(peer.package) is not None]
    return here, [peer.name for peer in wanted if peer not in here and names]
