"""The kernels of matrix products: what runs, every form of rows, panels, threads, other processors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import qnumba as qn
from qnumba.cpu import dots, jit, products
from qnumba.cpu.simd_products import TERNARY
from qnumba.moves.held import parts_of
from test_matmul import assert_product, random

SOURCE = Path(qn.__file__).parents[1]


def matrix(q):
    parts = parts_of(q)
    return products.Matrix(parts.words, parts.plan, parts.params)


# Rows of 1024 codes: their scheme, the lanes that share a scale, and the chunks of a span.
FORMS = {
    "Q8S": (16, 16),
    "U8 affine": (16, 16),
    "U8 affine block=192:F32": (16, 3),
    "Q8F block=5x64:F16": (16, 1),
    "Q8S block=320:F32": (16, 5),
    "Q8S block=32:F16": (8, 1),
    "Q8S block=16:F16 tensor=F32": (4, 1),
    "Q8S block=8:BF16": (2, 1),
    "Q8S block=4:UE8M0 store=packed_u32": (1, 1),
    "Q4S": (16, 8),
    "Q4S block=128:F16": (16, 1),
    "Q4F block=64:F16 store=packed_u8": (8, 1),
    "Q4S block=32:F16": (4, 1),
    "Q4S block=32:F16 store=native": (8, 1),
    "Q4S block=8:F16": (1, 1),
    "U4 affine block=256:F32": (16, 2),
    "Q2S": (16, 4),
    "Q2F block=16:F32": (1, 1),
    "U2 affine": (16, 4),
}
OTHERS = [
    "E4M3",
    "nf4",
    "nvfp4",
    "U8 affine block=32:F32",
    "Q8S block=33:F32",
    "Q8S block=2:F32",
    "Q4S block=48:F32",
    "Q4S pack_axis=1",
]


@pytest.mark.parametrize("scheme", FORMS)
def test_rows_decoded_in_registers(scheme):
    q = qn.quantize(random((70, 1024)), scheme)
    form = products.form_of(parts_of(q).plan)
    assert (form.places["split"], form.places["per_span"]) == FORMS[scheme]
    for count in (1, 2, 6):
        x = random((count, 1024), 1)
        found = products.codes_by_floats(matrix(q), x)
        assert_product(found, q, x.T)


@pytest.mark.parametrize("scheme", OTHERS)
def test_other_rows_are_not(scheme):
    q = qn.quantize(random((6, 1024)), scheme)
    assert products.form_of(parts_of(q).plan) is None


@pytest.mark.parametrize("cols", [63, 65, 1000])
def test_rows_that_are_no_whole_chunks_are_not(cols):
    q = qn.quantize(random((6, cols)), "int8")
    assert products.form_of(parts_of(q).plan) is None


@pytest.mark.parametrize("scheme", [name for name in FORMS if "affine" not in name])
@pytest.mark.parametrize(
    "other", ["Q8S", "Q8S block=64:F32", "Q8S block=3x128:F16", "Q4S block=16:F16 tensor=F32"]
)
def test_integer_rows_by_integer_vectors(scheme, other):
    q, x = qn.quantize(random((70, 1024)), scheme), qn.quantize(random((7, 1024), 1), other)
    expected = q.dequantize().astype(np.float64) @ x.dequantize().astype(np.float64).T
    got = q @ x.T
    unit = 2.0**-24 * (np.abs(q.dequantize()) @ np.abs(x.dequantize().T))
    assert (np.abs(got - expected) <= 80 * unit).all()  # 64 lanes of exact sums, and their scales


def test_a_row_with_one_scale_is_exact():
    q, x = qn.quantize(random((6, 4096)), "int8"), qn.quantize(random((4096,), 1), "int8")
    scale = np.float32(q.scales * np.float32(1)) * x.scales
    whole = q.codes().astype(np.int64) @ x.codes().astype(np.int64)
    assert (q @ x == whole.astype(np.float32) * scale).all()


@pytest.mark.skipif(not jit.IS_COMPILED, reason="looks at compiled code")
def test_ternary_weights_multiply_nothing():
    """But for the scale, once for a result."""
    q, x = qn.quantize(random((70, 1024)), "ternary"), random(1024, 1)
    assert_product(q @ x, q, x)
    signatures = dots.rows_of_codes.signatures
    (ternary,) = (s for s in signatures if s[2].dtype.typeof("tile").shape[0] == TERNARY)
    code = dots.rows_of_codes.inspect_llvm(ternary)
    assert len(re.findall(r"\bfadd\b", code)) >= 16
    assert len(re.findall(r"\bfmul\b", code)) == 2
    assert "llvm.fma" not in code


@pytest.mark.parametrize("scheme", ["int8", "Q4S block=32:F16", "ternary", "fp8", "nvfp4"])
@pytest.mark.parametrize("count", [1, 4])
def test_threads_change_no_bit(scheme, count, monkeypatch):
    weights = random((300, 1024))
    q, x = qn.quantize(weights, scheme), random((1024, count), 1)
    left = random((count, 300), 2)
    one = (q @ x, left @ q)
    monkeypatch.setattr(jit, "PARALLEL_FROM", 0)
    several = (q @ x, left @ q)
    assert all((a == b).all() for a, b in zip(one, several, strict=True))


@pytest.mark.parametrize(
    "scheme",
    [
        "Q8S block=7x5:F16",
        "E4M3 block=40x8:F32",
        "Q4S pack_axis=1",
        "Q4S block=3x8:F16 pack_axis=1",
        "U4 affine block=16x4:F32",
        "fp8",
        "Q4S block=60x8:F16 pack_axis=1",
    ],
)
@pytest.mark.parametrize("most", [1, 500, 10**6])
@pytest.mark.parametrize("shape", [(50, 17), (41, 1), (1, 30), (129, 64)])
def test_panels_are_the_rows_in_order(scheme, most, shape):
    q = qn.quantize(random(shape), scheme)
    expected, end = q.dequantize(), 0
    for start, panel in products.panels(matrix(q), np.dtype(np.float32), most):
        assert start == end
        end = start + len(panel)
        assert (panel == expected[start:end]).all()
    assert end == shape[0]


def test_panels_are_bounded():
    q = qn.quantize(random((4096, 256)), "fp8")
    sizes = [panel.size for _, panel in products.panels(matrix(q), np.dtype(np.float32), 2**16)]
    assert max(sizes) == 2**16
    assert sum(sizes) == q.size


def test_many_vectors_go_by_panels():
    q, x = qn.quantize(random((70, 1024)), "int8"), random((products.MANY, 1024), 1)
    assert products.codes_by_floats(matrix(q), x) is None
    assert_product(q @ x.T, q, x.T)


@pytest.mark.parametrize("count", [0, 1, 15, 64, 71, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dots_of_numbers(count, dtype):
    panel, x = random((3, count), dtype=dtype), random((2, count), 1, dtype=dtype)
    out = np.full((4, 2), 7, dtype)
    dots.along(0, 3, panel, x, out, 1)
    assert_product(out[1:], panel, x.T, np.dtype(dtype).name)
    assert (out[0] == 7).all()


PROGRAM = """
    import numpy as np
    import qnumba as qn
    random = np.random.default_rng(0)
    x = random.standard_normal((256, 3)).astype(np.float32)
    for scheme in ("Q4S block=32:F16", "ternary"):
        q = qn.quantize(random.standard_normal((5, 256)).astype(np.float32), scheme)
        for other in (x, x[:, 0], qn.quantize(x[:, 0], "Q8S block=64:F32")):
            b = other.dequantize() if isinstance(other, qn.QArray) else other
            a = q.dequantize()
            exact = a.astype(np.float64) @ b
            bound = 260 * 2.0**-24 * (np.abs(a) @ np.abs(b))
            assert (np.abs(q @ other - exact) <= bound).all(), scheme
        assert np.allclose(x.T[:, :5] @ q, x.T[:, :5] @ q.dequantize(), rtol=1e-4, atol=1e-4)
    print("fine")
"""


def without(*missing):
    """Return settings that compile for this processor without some of its features."""
    features = llvm.get_host_cpu_features()
    features.update((name, False) for name in features if name.startswith(missing))
    return {
        "NUMBA_CPU_NAME": llvm.get_host_cpu_name(),
        "NUMBA_CPU_FEATURES": features.flatten(),
    }


ELSEWHERE = {
    "plain Python": {"NUMBA_DISABLE_JIT": "1"},
    "no dot of bytes": without("avx512vnni"),
    "vectors of 32 bytes": without("avx512"),
}


@pytest.mark.parametrize("settings", ELSEWHERE.values(), ids=ELSEWHERE)
def test_elsewhere(settings):
    environment = os.environ | settings | {"PYTHONPATH": str(SOURCE)}
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert run.stdout == "fine\n", run.stderr[-2000:]
