"""What a call costs where the array is tiny, and what the first one costs.

python benchmarks/calls.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from typing import NamedTuple

import numpy as np

import qnumba as qn
from qnumba.bench.measure import interleaved, take_cores

SCHEME = "int8"
VALUES = 64
SECONDS = 1.0
FIRST = f"""
import json, time
import numpy as np
start = time.perf_counter()
import qnumba as qn
imported = time.perf_counter()
qn.quantize(np.ones({VALUES}, np.float32), {SCHEME!r})
print(json.dumps([imported - start, time.perf_counter() - start]))
"""


class Figure(NamedTuple):
    """A time, in what unit, and under which it is to be."""

    what: str
    time: float
    unit: str
    limit: float | None


def tiny():
    """Return what repeated calls cost, in microseconds."""
    x = np.random.default_rng(0).standard_normal(VALUES, np.float32)
    params = qn.calibrate(x, SCHEME)
    q = qn.quantize(x, SCHEME, params=params)
    calls = {
        "quantize(x, scheme, params=p, out=q)": (
            partial(qn.quantize, x, SCHEME, params=params, out=q),
            4.0,
        ),
        "quantize(x, scheme, out=q)": (partial(qn.quantize, x, SCHEME, out=q), None),
        "q.dequantize(out=y)": (partial(q.dequantize, out=np.empty_like(x)), 3.0),
        "calibrate(x, scheme)": (partial(qn.calibrate, x, SCHEME), None),
        "validate(scheme, shape=, dtype=)": (
            partial(qn.validate, SCHEME, shape=x.shape, dtype="float32"),
            None,
        ),
    }
    times = interleaved({name: call for name, (call, _) in calls.items()}, SECONDS)
    return [Figure(name, times[name] * 1e6, "us", limit) for name, (_, limit) in calls.items()]


def first():
    """Return what the first call of a process costs, with nothing on disk and with all there."""
    with tempfile.TemporaryDirectory(prefix="qnumba-calls-") as folder:
        runs = [_in_a_process(folder) for _ in range(4)]
    (_, cold), warm = runs[0], min(runs[1:], key=lambda run: run[1])
    return [
        Figure("import qnumba, NumPy loaded", warm[0] * 1e3, "ms", None),
        Figure("import and first quantize, kernels on disk", warm[1] * 1e3, "ms", 300),
        Figure("the same with an empty disk cache", cold, "s", 4),
    ]


def _in_a_process(folder):
    """Return the seconds until a new process has imported qnumba, and until its first result."""
    environment = os.environ | {"NUMBA_CACHE_DIR": folder}
    done = subprocess.run(
        [sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def main():
    """Print the table."""
    take_cores(1)
    print(f"{SCHEME}, {VALUES} values of float32")
    for what, time, unit, limit in [*tiny(), *first()]:
        wanted = "" if limit is None else f"to be under {limit:g}"
        short = "" if limit is None or time < limit else "SHORT"
        print(f"{what:<44} {time:>8.2f} {unit:<3} {wanted:<15} {short}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
