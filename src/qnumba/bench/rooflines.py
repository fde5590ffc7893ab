"""Loops that move as many bytes as an operation and calculate nothing: what memory allows.

A name says the bytes read and written for each value: ``r4w1`` reads float32 and writes 8-bit
codes. ``r4+r4w1`` is one loop after the other, the traffic of an operation that looks at the whole
array before it encodes. Operations that write less than a byte are measured beside ``r4w1`` too, so
their ratio can be above 1.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
from numba import prange

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def _read(source: Any, _target: Any) -> Any:
    """Read values, 8 bytes at a time: integers are added fastest, and in any order."""
    total = np.uint64(0)
    for i in prange(source.size):
        total += source[i]
    return total


def _narrow4(source: Any, target: Any) -> None:
    """Read 4 bytes and write 1."""
    for i in prange(source.size):
        target[i] = np.uint8(source[i] >> np.uint32(24))


def _narrow2(source: Any, target: Any) -> None:
    """Read 2 bytes and write 1."""
    for i in prange(source.size):
        target[i] = np.uint8(source[i] >> np.uint16(8))


def _widen(source: Any, target: Any) -> None:
    """Read 1 byte and write 4."""
    for i in prange(source.size):
        target[i] = np.uint32(source[i])


class Loop(NamedTuple):
    """A loop, and the dtypes of what it reads and writes; one that only reads, reads the floats."""

    function: Callable[[Any, Any], Any]
    source: type[np.generic] = np.uint64
    target: type[np.generic] | None = None


LOOPS = {
    "r4": Loop(_read),
    "r2": Loop(_read),
    "r4w1": Loop(_narrow4, np.uint32, np.uint8),
    "r2w1": Loop(_narrow2, np.uint16, np.uint8),
    "r1w4": Loop(_widen, np.uint8, np.uint32),
}


@cache
def _compiled(loop: Loop, *, parallel: bool) -> Any:
    return numba.njit(parallel=parallel, nogil=True, fastmath=True)(loop.function)


def roofline(name: str, floats: NDArray[Any], threads: int) -> Callable[[], Any]:
    """Return the call that runs the loops of a name, with memory of their own to write to.

    Parameters
    ----------
    name : str
        A name of ``LOOPS``, or several joined by ``+``.
    floats : numpy.ndarray
        The floating-point side of the operation, contiguous: loops that read floats read this.
    threads : int
        1: loops without threads; more: Numba's threads.

    Returns
    -------
    callable
        Without arguments.
    """
    flat = floats.reshape(-1)
    calls = [_bound(LOOPS[word], flat, threads) for word in name.split("+")]
    if len(calls) == 1:
        return calls[0]

    def run_all() -> None:
        for call in calls:
            call()

    return run_all


def _bound(loop: Loop, floats: NDArray[Any], threads: int) -> Callable[[], Any]:
    """Return one loop with its arrays."""
    run = _compiled(loop, parallel=threads > 1)
    item = np.dtype(loop.source).itemsize
    if item < floats.itemsize:
        source = np.zeros(floats.size, loop.source)
    else:
        source = floats[: floats.nbytes // item * item // floats.itemsize].view(loop.source)
    target = np.zeros(floats.size if loop.target else 0, loop.target)
    return lambda: run(source, target)
