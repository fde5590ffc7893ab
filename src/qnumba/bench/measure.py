"""One case on one array: compare its bits with the reference, then time it beside its roofline."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba import reference
from qnumba.calibrate import calibrate
from qnumba.errors import DataError
from qnumba.inputs import float_dtype
from qnumba.layout import plan
from qnumba.params import Options, Params
from qnumba.qarray import QArray
from qnumba.quantize import quantize
from qnumba.validate import as_scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from qnumba.bench.cases import Case
    from qnumba.bench.peers import Job

ODD_SHAPE = (131, 299)  # of the array whose bits are compared: no multiple of a block or a vector
FEWEST_ROUNDS = 7
LONG_ENOUGH = 2e-4  # seconds: shorter calls are repeated until the clock's own time is nothing
MOST_REPEATS = 1000
SAMPLE = 2**20  # values whose error is measured
DRAWS = 2**22  # further numbers are the same again
WORSE = 3.0  # dB by which another library's result may fall behind


@lru_cache(maxsize=2)
def numbers(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Return normal numbers, the same ones each time, read-only."""
    draws = np.random.default_rng(0).standard_normal(min(math.prod(shape), DRAWS), np.float32)
    x = np.resize(draws.astype(float_dtype(dtype)), shape)
    x.flags.writeable = False
    return x


def call_of(case: Case, x: NDArray[Any]) -> Callable[[], Any]:
    """Return the call of a case on an array; the memory it writes to is used again each time."""
    if case.op == "calibrate":
        return partial(calibrate, x, case.scheme)
    given = None if case.op == "quantize" else calibrate(x, case.scheme)
    options: dict[str, Any] = {"rounding": case.rounding, "params": given}
    q = quantize(x, case.scheme, **options)
    if case.op == "dequantize":
        return partial(q.dequantize, out=np.empty_like(x))
    return partial(quantize, x, case.scheme, out=q, **options)


def check(case: Case) -> None:
    """Refuse to time what has other bits than the reference.

    Raises
    ------
    DataError
        If a bit differs on an array of odd shape.
    """
    x = numbers(ODD_SHAPE, case.dtype)
    if _bits(call_of(case, x)()) != _bits(_defined(case, x)):
        raise DataError(
            f"{case.name}: the result differs from the reference, so nothing of it is timed; this "
            "is a fault of qnumba: please report it with the output of qnumba bench --json"
        )


def check_job(job: Job, case: Case, x: NDArray[Any]) -> float | None:
    """Refuse to time a call of another library that does something else, or does it worse.

    Returns
    -------
    float or None
        The signal to noise ratio of its result in dB; None of parameters.

    Raises
    ------
    DataError
        If numbers are lost that qnumba keeps, or extremes are more than a step of 8 bits off.
    """
    job.call()
    found = job.numbers()
    if case.op == "calibrate":
        extremes = np.array([x.min(), x.max()])
        exact = np.abs(extremes).max(keepdims=True) if case.peer == "absmax" else extremes
        if not np.abs(found - exact).max() <= np.ptp(extremes) / 255:
            raise DataError(f"it found {found} where {exact} is right")
        return None
    theirs, ours = snr(x, found), snr(x, call_of(case, x)())
    if theirs is not None and not theirs >= (ours or math.inf) - WORSE:
        raise DataError(f"its result has an SNR of {theirs:.1f} dB, that of qnumba {ours:.1f} dB")
    return theirs


def _defined(case: Case, x: NDArray[Any]) -> Any:
    """Return what the reference makes of a case."""
    layout = plan(as_scheme(case.scheme), x.shape)
    options = Options(rounding=case.rounding)
    words = np.empty(layout.words_shape, layout.words_dtype)
    params, _ = reference.quantize(x, layout, options, None, words)
    if case.op == "calibrate":
        return params
    if case.op != "dequantize":
        return QArray(layout, words, params, source_dtype="")
    numbers_back = np.empty_like(x)
    reference.dequantize(words, layout, params, numbers_back)
    return numbers_back


def _bits(result: Any) -> list[tuple[Any, bytes]]:
    """Return the shape and bytes of every array of a result."""
    arrays = [result]
    if not isinstance(result, np.ndarray):
        params = result.params if isinstance(result, QArray) else result
        arrays = [getattr(params, name) for name in Params._fields]
        arrays += [result.words] if isinstance(result, QArray) else []
    return [(np.shape(a), b"" if a is None else np.asarray(a).tobytes()) for a in arrays]


def snr(x: NDArray[Any], result: Any) -> float | None:
    """Return the signal to noise ratio in dB of what an operation made; None of parameters."""
    if not isinstance(result, (np.ndarray, QArray)):
        return None
    rows = -(-SAMPLE // max(1, math.prod(x.shape[1:])))
    back = result if isinstance(result, np.ndarray) else result.dequantize()
    exact = x[:rows].astype(np.float64)
    noise = float(np.square(exact - back[:rows].astype(np.float64)).sum())
    return 10 * math.log10(float(np.square(exact).sum()) / noise) if noise else None


def interleaved(calls: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the shortest time of every call, run in turns so that all meet the same machine.

    Parameters
    ----------
    calls : mapping
        Calls without arguments, by name.
    seconds : float
        How long to go on; every call runs in at least ``FEWEST_ROUNDS`` rounds.

    Returns
    -------
    dict
        Seconds of one call, by name.
    """
    repeats = {name: _repeats(call) for name, call in calls.items()}
    best = dict.fromkeys(calls, math.inf)
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < FEWEST_ROUNDS or time.perf_counter() < end:
        rounds += 1
        for name, call in calls.items():
            best[name] = min(best[name], _time(call, repeats[name]))
    return best


def _time(call: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of one call, from several in a row."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _repeats(call: Callable[[], Any]) -> int:
    """Run a call until it is warm; return how many in a row are long enough to be timed."""
    call()
    once = min(_time(call, 1) for _ in range(3))
    return min(MOST_REPEATS, int(LONG_ENOUGH / max(once, 1e-9)) + 1)


def take_cores(threads: int) -> list[int]:
    """Let this thread, and those it starts, have as many cores as threads; return which.

    Raises
    ------
    DataError
        If the process may not use as many cores.
    """
    cores = available_cores()
    if threads > len(cores):
        raise DataError(
            f"{threads} threads need {threads} cores, and this process may use {len(cores)}; give "
            "--threads fewer"
        )
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores[:threads])
    return cores[:threads]


def spread(cores: list[int]) -> None:
    """Pin this thread to the first core and all others of the process to the rest, in turns.

    Threads that wait in a loop take milliseconds for what takes microseconds where two of them
    share a core. Only Linux tells which threads there are; elsewhere nothing is pinned.
    """
    tasks = Path("/proc/self/task")
    if len(cores) == 1 or not tasks.exists():
        return
    me = threading.get_native_id()
    others = sorted(int(task.name) for task in tasks.iterdir() if int(task.name) != me)
    os.sched_setaffinity(me, cores[:1])
    for number, task in enumerate(others):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(task, {cores[1 + number % (len(cores) - 1)]})


def available_cores() -> list[int]:
    """Return the cores that this thread may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
