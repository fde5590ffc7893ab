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


def _read4(source: Any, _target: Any) -> Any:
    """Read 4 bytes of each value. A sum in any order is what a vector adds fastest."""
    total = np.float32(0)
    for i in prange(source.size):
        total += source[i]
    return total


def _read2(source: Any, _target: Any) -> Any:
    """Read 2 bytes of each value, two values at a time."""
    total = np.uint32(0)
    for i in prange(source.size):
        total = np.uint32(total + source[i])
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
    """A loop and the dtypes of what it reads and writes."""

    function: Callable[[Any, Any], Any]
    source: type[np.generic]
    target: type[np.generic] | None = None


LOOPS = {
    "r4": Loop(_read4, np.float32),
    "r2": Loop(_read2, np.uint16),
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
    reads = np.dtype(loop.source).itemsize == floats.itemsize
    source = floats.view(loop.source) if reads else np.zeros(floats.size, loop.source)
    target = np.zeros(floats.size if loop.target else 0, loop.target)
    return lambda: run(source, target)
