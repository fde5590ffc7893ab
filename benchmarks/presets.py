"""Speed of every preset on one core: GB/s of float32, beside a loop that moves as many bytes.

Run ``NUMBA_NUM_THREADS=1 python benchmarks/presets.py [MiB]``. Codes are compared with the
reference before anything is timed. Each figure is the best of many runs, taken in turns.
"""

from __future__ import annotations

import sys
import time

import numba
import numpy as np

import qnumba as qn
from qnumba import reference
from qnumba.layout import plan
from qnumba.params import Options

REPEATS = 25


@numba.njit(nogil=True)
def move(source, target):
    """Read 4 bytes and write 1 for each value: the traffic of quantizing to 8 bits."""
    for i in range(source.size):
        target[i] = np.uint8(source[i] >> np.uint32(24))


def check(preset: str) -> None:
    """Refuse to time a kernel whose bits are not those of the reference."""
    x = np.random.default_rng(1).standard_normal((129, 300), np.float32)
    layout = plan(qn.PRESETS[preset], x.shape)
    words = np.empty(layout.words_shape, layout.words_dtype)
    reference.quantize(x, layout, Options(), None, words)
    assert np.array_equal(qn.quantize(x, preset).words, words), preset


def best_of(calls: dict[str, object]) -> dict[str, float]:
    """Return the shortest time of every call, run in turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(REPEATS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    """Print the table."""
    mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    rows = mebibytes * 2**18 // 4096
    x = np.random.default_rng(0).standard_normal((rows, 4096), np.float32)
    bits, target, out = x.view(np.uint32).reshape(-1), np.empty(x.size, np.uint8), np.empty_like(x)
    print(f"{mebibytes} MiB of float32, {numba.get_num_threads()} thread(s), GB/s of float32")
    print(f"{'preset':<10} {'quantize':>9} {'dequantize':>11} {'move':>6}")
    for preset in qn.PRESETS:
        check(preset)
        q = qn.quantize(x, preset)
        best = best_of(
            {
                "quantize": lambda preset=preset, q=q: qn.quantize(x, preset, out=q),
                "dequantize": lambda q=q: q.dequantize(out=out),
                "move": lambda: move(bits, target),
            }
        )
        speed = {name: x.nbytes / seconds / 1e9 for name, seconds in best.items()}
        print(
            f"{preset:<10} {speed['quantize']:>9.1f} {speed['dequantize']:>11.1f} "
            f"{speed['move']:>6.1f}"
        )


if __name__ == "__main__":
    main()
