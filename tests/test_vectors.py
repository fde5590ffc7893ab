"""The hot loops are vectors: seen in the machine code that comes out, in a process of its own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from qnumba.cpu import jit

pytestmark = [
    pytest.mark.skipif(not jit.IS_COMPILED, reason="nothing is compiled"),
    pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="reads x86 code"),
]

PROGRAM = """
import numpy as np, qnumba as qn
from qnumba.cpu import kernels

x = np.ones((4, 256), np.float32)
for preset in ("int4", "mxfp8"):
    qn.quantize(x, preset).dequantize(out=x)
    print(*kernels.quantize.inspect_asm().values(), *kernels.dequantize.inspect_asm().values())
    print("#### end of", preset)
"""


@pytest.fixture(scope="module")
def codes(tmp_path_factory):
    """Machine code of the kernels of integers, and of those and minifloats."""
    source, cache = Path(jit.__file__).parents[2], tmp_path_factory.mktemp("numba")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    integers, both, _ = done.stdout.split("#### end of")
    return {"integers": integers, "both": both}


@pytest.mark.parametrize(
    ("kernels", "operation", "loops"),
    [
        ("integers", "divps", 4),  # ties to even or away; a scale by run, or by value
        ("integers", "pmaxud", 3),  # magnitudes of runs together, alone, and of columns
        ("integers", "mulps", 2),  # decoded by a scale by run, or by value
        ("both", "divps", 6),
        ("both", "cvtph2ps", 2),
    ],
)
def test_hot_loops_are_vectors(codes, kernels, operation, loops):
    packed = [line for line in codes[kernels].splitlines() if f"v{operation}\t" in line]
    wide = [line for line in packed if "ymm" in line or "zmm" in line]
    assert len(wide) >= loops, packed
