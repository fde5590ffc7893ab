"""Global memory: allocations with guard gaps and a map of the bytes that were written."""

from __future__ import annotations

import numpy as np

BASE = 0x7F0000000000
MAPPED, WRITTEN = 1, 2
POISON = 0xA5
GAP = 256


class PtxError(RuntimeError):
    """What a kernel did wrong, or what the emulator does not know."""


class Memory:
    """A heap whose every byte is unmapped, mapped or written."""

    def __init__(self, size=1 << 26):
        self.heap = np.zeros(size, np.uint8)
        self.state = np.zeros(size, np.uint8)
        self.top = GAP

    def new(self, size, offset=0):
        """Return the address of ``size`` bytes nobody wrote, ``offset`` bytes off a multiple of 256."""
        start = -(-self.top // GAP) * GAP + offset
        self.top = start + size + GAP
        if self.top > self.heap.size:
            raise PtxError("emulated memory is full")
        self.heap[start : start + size] = POISON
        self.state[start : start + size] = MAPPED
        return BASE + start

    def put(self, array, offset=0):
        """Return the address of a copy of an array."""
        place = self.new(array.nbytes, offset)
        self.write(place, array)
        return place

    def write(self, place, array):
        """Copy an array to an address."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        span = slice(place - BASE, place - BASE + data.size)
        if (self.state[span] == 0).any():
            raise PtxError("a copy outside an allocation")
        self.heap[span] = data
        self.state[span] = WRITTEN

    def read(self, place, dtype, count):
        """Return a copy of ``count`` numbers, every byte of which must have been written."""
        dtype = np.dtype(dtype)
        span = slice(place - BASE, place - BASE + dtype.itemsize * count)
        missing = int((self.state[span] != WRITTEN).sum())
        if missing:
            raise PtxError(f"{missing} output bytes were never written")
        return self.heap[span].copy().view(dtype)

    def forget(self):
        """Drop every allocation."""
        self.state[: self.top] = 0
        self.top = GAP
