"""The emulator itself: what it must refuse, and its arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numba import cuda, types, uint32

import cuda_support  # noqa: F401 - skips without numba-cuda
from emulator.device import SM90, emulated
from emulator.floats import extreme, fused32
from emulator.memory import Memory, PtxError
from qnumba.gpu.ptx import load4, swap_lanes

pytestmark = pytest.mark.cuda_emulated
FLOATS = types.CPointer(types.float32)
BLOCK = 64


def run(function, *arrays, block=BLOCK):
    """Run a function of float32 pointers on the emulator; return the last array."""
    with emulated(SM90) as device:
        held = [device.put(array) for array in arrays]
        kernel = cuda.jit(types.void(*[FLOATS] * len(arrays)))(function)
        kernel[1, block](*[array.pointer for array in held])
        return held[-1].get()


NUMBERS = np.arange(BLOCK, dtype=np.float32)


def reversed_in_shared(x, y):
    held = cuda.shared.array(BLOCK, np.float32)
    place = cuda.threadIdx.x
    held[place] = x[place]
    cuda.syncthreads()
    y[place] = held[BLOCK - 1 - place]


def raced(x, y):
    held = cuda.shared.array(BLOCK, np.float32)
    place = cuda.threadIdx.x
    held[place] = x[place]
    y[place] = held[BLOCK - 1 - place]


def past_the_end(x, y):
    y[cuda.threadIdx.x] = x[cuda.threadIdx.x + 1]


def written_past(x, y):
    y[cuda.threadIdx.x + 1] = x[cuda.threadIdx.x]


def misaligned(x, y):
    place = cuda.threadIdx.x
    y[place] = load4(x, place)[0]


def divergent(x, y):
    place = cuda.threadIdx.x
    if place < 40:
        y[place] = swap_lanes(uint32(x[place]), uint32(1))


def endless(x, y):
    while x[0] == 0:
        y[0] = 1


def test_shared_memory_and_barriers_work():
    assert (run(reversed_in_shared, NUMBERS, NUMBERS) == NUMBERS[::-1]).all()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raced, "race"),
        (past_the_end, "outside an allocation"),
        (written_past, "outside an allocation"),
        (misaligned, "misaligned"),
        (divergent, "part of warp"),
    ],
)
def test_faults_are_refused(function, message):
    with pytest.raises(PtxError, match=message):
        run(function, NUMBERS, NUMBERS)


def test_endless_loops_end(monkeypatch):
    monkeypatch.setattr("emulator.machine.MOST_STEPS", 1000)
    with pytest.raises(PtxError, match="endless"):
        run(endless, NUMBERS, NUMBERS)


def test_reading_back_what_nobody_wrote_is_refused():
    memory = Memory(4096)
    with pytest.raises(PtxError, match="never written"):
        memory.read(memory.new(8), np.float32, 2)


def test_fused_multiply_add_rounds_once():
    random = np.random.default_rng(0)
    x, y, z = (random.integers(0, 2**32, 20000, np.uint32).view(np.float32) for _ in range(3))
    with np.errstate(all="ignore"):
        z[:10000] = -(x[:10000] * y[:10000])  # cancellation: where rounding twice shows
        result = fused32(x, y, z)
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & np.isfinite(result)
    for k in np.flatnonzero(finite & (np.abs(result) > 1e-30))[:2000]:
        exact = Fraction(float(x[k])) * Fraction(float(y[k])) + Fraction(float(z[k]))
        off = abs(Fraction(float(result[k])) - exact)
        for toward in (-np.inf, np.inf):
            other = np.nextafter(result[k], np.float32(toward))
            assert not np.isfinite(other) or off <= abs(Fraction(float(other)) - exact)


def test_min_and_max_order_zeros_and_drop_nan():
    x = np.array([0.0, -0.0, np.nan, 1.0], np.float32)
    y = np.array([-0.0, 0.0, 2.0, np.nan], np.float32)
    assert np.signbit(extreme(np.fmin, x, y, keep_nan=False)).tolist() == [True, True, False, False]
    assert extreme(np.fmax, x, y, keep_nan=False)[2:].tolist() == [2.0, 1.0]
    assert np.isnan(extreme(np.fmax, x, y, keep_nan=True)[2:]).all()


def test_sectors_of_wide_accesses_are_all_used():
    def copied(x, y):
        place = cuda.threadIdx.x
        y[place] = load4(x, place * 4)[0]

    with emulated(SM90) as device:
        x, y = device.put(np.zeros(4 * BLOCK, np.float32)), device.put(NUMBERS)
        cuda.jit(types.void(FLOATS, FLOATS))(copied)[1, BLOCK](x.pointer, y.pointer)
        requests, sectors = device.runs[-1].sectors["ld", 16]
    assert (requests, sectors) == (2, 32)
