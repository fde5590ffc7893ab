"""Speed of matrix products on one core, beside reading the weights and beside NumPy's BLAS.

Run ``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/products.py``.
Weights are 4096 x 4096, and so many of them are used in turn that they come from memory. Each
figure is the best of many runs, taken in turns; what is timed was compared with float64 before.
"""

from __future__ import annotations

import time

import numba
import numpy as np

import qnumba as qn
from qnumba.cpu import jit

SIZE = 4096
MATRICES = 8
ROUNDS = 6
GEMV = [
    ("int8", None),
    ("Q8S block=32:F16", None),
    ("int4", None),
    ("Q4S block=32:F16", None),
    ("Q4S block=128:F16", None),
    ("ternary", None),
    ("nvfp4", None),
    ("nf4", None),
    ("int8", "int8"),
    ("Q4S block=32:F16", "int8"),
    ("Q4S block=32:F16", "Q8S block=32:F32"),
]
GEMM = ["int8", "Q4S block=32:F16", "nvfp4"]
COUNTS = [2, 4, 8, 16, 32, 128, 512]


@numba.njit(nogil=True)
def read(words):
    """Read an array, 8 bytes at a time."""
    total = np.uint64(0)
    for k in range(words.size):
        total += words[k]
    return total


def read_all(q):
    """Read the codes and the scales of an array, as they are in memory."""
    read(q.words.reshape(-1).view(np.uint64))
    if q.scales.size > 1:
        read(q.scales.reshape(-1).view(np.uint64))


def check(q, x):
    """Refuse to time a product that is not within its bound."""
    a, b = q.dequantize(), x.dequantize() if isinstance(x, qn.QArray) else x
    exact, bound = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(q @ x - exact) <= (SIZE + 4) * 2.0**-24 * bound).all()


def best_of(calls):
    """Return the shortest time of every call, run in turns with one matrix after the other."""
    best = dict.fromkeys(calls, float("inf"))
    for number in range(ROUNDS * MATRICES):
        for name, call in calls.items():
            start = time.perf_counter()
            call(number % MATRICES)
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def gemv(weights):
    """Print the products with one vector."""
    random = np.random.default_rng(1)
    print(f"{'weights':<20} {'vector':<18} {'us':>6} {'GB/s':>6} {'of reading':>10}")
    for scheme, other in GEMV:
        matrices = [qn.quantize(w, scheme) for w in weights]
        x = random.standard_normal(SIZE, np.float32)
        x = x if other is None else qn.quantize(x, other)
        check(matrices[0], x)
        best = best_of(
            {
                "matmul": lambda k, matrices=matrices, x=x: matrices[k] @ x,
                "read": lambda k, matrices=matrices: read_all(matrices[k - MATRICES // 2]),
            }
        )
        size = matrices[0].words.nbytes + matrices[0].scales.nbytes
        print(
            f"{scheme:<20} {other or 'float32':<18} {best['matmul'] * 1e6:>6.0f} "
            f"{size / best['matmul'] / 1e9:>6.1f} {best['read'] / best['matmul']:>10.2f}"
        )


def gemm(weights):
    """Print the products with several vectors, and the time with ``dequantize()`` and BLAS."""
    random = np.random.default_rng(2)
    print(f"\n{'weights':<20} {'vectors':>7} {'ms':>8} {'dequantize, BLAS: ms':>21}")
    for scheme in GEMM:
        q = qn.quantize(weights[0], scheme)
        for count in COUNTS:
            x = random.standard_normal((SIZE, count), np.float32)
            check(q, x)
            best = best_of(
                {
                    "matmul": lambda _, q=q, x=x: q @ x,
                    "blas": lambda _, q=q, x=x: q.dequantize() @ x,
                }
            )
            print(
                f"{scheme:<20} {count:>7} {best['matmul'] * 1e3:>8.2f} {best['blas'] * 1e3:>21.2f}"
            )


if __name__ == "__main__":
    jit.PARALLEL_FROM = 2**62  # one core: handing work to a thread would only cost
    print(f"{SIZE} x {SIZE}, one core")
    numbers = np.random.default_rng(0).standard_normal((MATRICES, SIZE, SIZE), np.float32)
    gemv(numbers)
    gemm(numbers)
