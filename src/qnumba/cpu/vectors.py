"""Vectors laid out as rows of codes are read: in chunks of 64 bytes of 16 lanes (``simd_dots.py``).

Step k of a chunk takes code k of each lane, so the numbers that meet it lie together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.cpu.simd_dots import CHUNK, LANES

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BYTE, _LANE_BITS = 8, 32


def aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an empty array that starts at a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + CHUNK, np.uint8)
    start = -memory.ctypes.data % CHUNK
    return memory[start : start + size].view(dtype).reshape(shape)


def floats_for(x: NDArray[Any], bits: int, count: int) -> NDArray[np.float32]:
    """Return float32 vectors (n, k) laid out for codes of some bits, 0 up to ``count`` vectors."""
    steps = _LANE_BITS // bits
    out = aligned((count, x.shape[1] // (LANES * steps), steps, LANES), np.float32)
    out[: len(x)] = x.reshape(len(x), -1, LANES, steps).transpose(0, 1, 3, 2)
    out[len(x) :] = 0
    return out.reshape(-1)


def codes_for(x: NDArray[Any], bits: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return int8 vectors (n, k) laid out for codes of some bits, and what to add to each lane.

    Codes are read as unsigned numbers, too large by half their range: what that adds to the dot
    of a lane is taken off from the start.
    """
    pieces = _BYTE // bits
    out = aligned((count, x.shape[1] // (CHUNK * pieces), pieces, CHUNK), np.int8)
    out[: len(x)] = x.reshape(len(x), -1, CHUNK, pieces).transpose(0, 1, 3, 2)
    out[len(x) :] = 0
    minus = np.zeros((count, x.shape[1] * bits // _LANE_BITS), np.int32)
    lanes = x.reshape(len(x), -1, _LANE_BITS // bits)
    minus[: len(x)] = lanes.sum(-1, dtype=np.int32) * np.int32(-(2 ** (bits - 1)))
    return out.reshape(-1), minus.reshape(-1)
