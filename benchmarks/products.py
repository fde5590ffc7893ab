"""Speed of matrix products on one core, beside reading the weights and beside NumPy's BLAS.

    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    python benchmarks/products.py
    python benchmarks/products.py --peers            # beside other libraries
    python benchmarks/products.py --peers --write    # the same, and into docs/matmul.md

Weights are 4096 x 4096, and so many of them are used in turn that they come from memory. Each
figure is the best of many runs, taken in turns; what is timed was compared with float64 before.
Every other library has a process of its own, in which qnumba is timed again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numba
import numpy as np
from product_peers import PRODUCTS

import qnumba as qn
from qnumba.bench.machine import machine, versions
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
PAGE = Path(__file__).resolve().parents[1] / "docs" / "matmul.md"
PART = re.compile(r"(<!-- products: peers -->\n).*?(<!-- end -->)", re.DOTALL)
LEAD = "qnumba is so many times as fast"
HEAD = ("library", "product", "weights", "vector", "µs", "qnumba: µs", LEAD)


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


def relative_error(found, exact):
    """Return the error of a vector, as a share of its length."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def beside(product, weights):
    """Return the times in microseconds of another library's product and of ours."""
    x = np.random.default_rng(1).standard_normal(SIZE, np.float32)
    matrices = [qn.quantize(w, product.scheme) for w in weights]
    prepared = [product.prepare(q, x) for q in matrices]

    def ours(k):
        return matrices[k] @ (x if product.vector is None else qn.quantize(x, product.vector))

    for k, (call, result) in enumerate(prepared):
        call()
        exact = matrices[k].dequantize().astype(np.float64) @ x
        for found in (result(), ours(k)):
            error = relative_error(found, exact)
            assert error <= product.bound, f"a relative error of {error:.1e}"
    best = best_of({"theirs": lambda k: prepared[k][0](), "ours": ours})
    return {
        "library": product.library,
        "what": product.what,
        "weights": product.scheme,
        "vector": product.vector or "float32",
        "us": best["theirs"] * 1e6,
        "qnumba_us": best["ours"] * 1e6,
    }


def measure(package, weights):
    """Print the rows of a package's products as JSON, and on the other stream what has none."""
    for product in (product for product in PRODUCTS if product.package == package):
        try:
            print(json.dumps(beside(product, weights)), flush=True)
        except Exception as error:  # noqa: BLE001, PERF203 - the others are measured
            why = f"{type(error).__name__}: {error}"
            print(f"{product.library} {product.what}: {why}", file=sys.stderr)


def rows_of(package):
    """Yield the rows that a process of its own measures for a package."""
    command = [sys.executable, __file__, "--package", package]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield from map(json.loads, process.stdout)
    if process.returncode:
        print(f"{package}: ended with status {process.returncode}", file=sys.stderr)


def peers():
    """Print what other libraries reach beside ours; return it as text for the page."""
    packages = [name for name in dict.fromkeys(p.package for p in PRODUCTS) if find_spec(name)]
    used = ", ".join(f"{name} {text}" for name, text in versions(packages).items())
    lines = [f"{machine()['cpu']}; {used}.", "", line(HEAD), line(["---"] * len(HEAD))]
    print(*lines, sep="\n")
    for package in packages:
        for row in rows_of(package):
            lead = f"{row['us'] / row['qnumba_us']:.2f}"
            names = row["library"], row["what"], f"`{row['weights']}`", f"`{row['vector']}`"
            lines.append(line([*names, f"{row['us']:.0f}", f"{row['qnumba_us']:.0f}", lead]))
            print(lines[-1], flush=True)
    return "\n".join(lines)


def line(cells):
    """Return a line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def options():
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peers", action="store_true", help="beside other libraries")
    parser.add_argument("--write", action="store_true", help="what --peers prints, into the page")
    parser.add_argument("--package", help=argparse.SUPPRESS)  # what a process of --peers measures
    return parser.parse_args()


def main():
    """Print the figures that are asked for."""
    asked = options()
    jit.PARALLEL_FROM = 2**62  # one core: handing work to a thread would only cost
    if asked.peers:
        text = peers()
        if asked.write:
            page = PART.sub(lambda part: f"{part[1]}{text}\n{part[2]}", PAGE.read_text("utf-8"))
            PAGE.write_text(page, "utf-8")
        return
    numbers = np.random.default_rng(0).standard_normal((MATRICES, SIZE, SIZE), np.float32)
    if asked.package:
        measure(asked.package, numbers)
        return
    print(f"{SIZE} x {SIZE}, one core")
    gemv(numbers)
    gemm(numbers)


if __name__ == "__main__":
    main()
