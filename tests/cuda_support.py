"""What the tests of CUDA kernels share: hard data, and one call that compares with the reference."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import pytest

os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")  # small launches are the point here
pytest.importorskip("numba_cuda", reason="needs numba-cuda: pip install 'qnumba[cuda12]'")
ml_dtypes = pytest.importorskip("ml_dtypes")

from emulator.memory import BASE, MAPPED  # noqa: E402
from qnumba import reference  # noqa: E402
from qnumba.layout import plan as make_plan  # noqa: E402
from qnumba.params import Options, Params  # noqa: E402
from qnumba.scheme import Scheme  # noqa: E402
from support import assert_same_bits  # noqa: E402

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {"float32": np.dtype("f4"), "float16": np.dtype("f2"), "bfloat16": BFLOAT16}
DTYPES |= {"float64": np.dtype("f8")}


class Case(NamedTuple):
    """What is quantized, how, and at which addresses."""

    scheme: Scheme
    shape: tuple[int, ...]
    dtype: str = "float32"
    decoded: str = "float32"
    offsets: tuple[int, int] = (0, 0)
    params: Params | None = None
    options: dict[str, str] = {}

    def __str__(self) -> str:
        extra = "".join(f" {choice}" for choice in self.options.values())
        return f"{self.scheme} {self.shape} {self.dtype}>{self.decoded}{extra} @{self.offsets}"


def hard(shape, seed=0, dtype="float32", *, special=False, magnitude=0):
    """Return numbers with ties, zeros of both signs, all-zero blocks and subnormals.

    Every third seed has an outlier that leaves a per-tensor scheme nothing but zeros; every third,
    numbers that lie on ties where the largest magnitude, 63.5, sets the scale.
    """
    random = np.random.default_rng(seed)
    x = random.standard_normal(shape)
    flat = x.reshape(-1)
    flat *= np.exp2(random.integers(-6, 6, flat.size))
    flat[::5] = np.round(flat[::5] * 2) / 2
    for start, stop, what in ((5, 20, 0.0), (150, 220, 0.0), (20, 21, -0.0), (221, 222, -0.0)):
        flat[start:stop] = what
    flat[25:30] *= 1e-38
    flat[230:290] *= 1e-40
    if seed % 3 == 1:
        flat[33:34] = 6e4 if dtype == "float16" else 1e30
    if seed % 3 == 2:
        flat[:] = np.clip(np.round(flat * 16) / 4, -63.5, 63.5)
        flat[-7:-6] = 63.5
    flat *= 2.0**magnitude
    if special:
        flat[2:10:2] = (np.nan, np.inf, -np.inf, -np.nan)[: flat[2:10:2].size]
        flat[3:4] = -900.0
        flat[100:112] = np.nan
    with np.errstate(all="ignore"):
        return x.astype(DTYPES[dtype])


def put(device, array, offset=0):
    """Return a copy on the device; bfloat16 keeps its name."""
    stored = array.view(np.uint16) if array.dtype == BFLOAT16 else array
    copy = device.put(stored, offset)
    return tagged(copy, array.dtype.name)


def tagged(array, name):
    """Return the view of an array under the name of a dtype that NumPy lacks."""
    from qnumba.gpu.arrays import view

    return view(array)._replace(dtype=name, owner=array)


def host(array):
    """Return a copy of a device array; None stays."""
    return None if array is None else array.get()


def quantized(device, case, x):
    """Quantize on the device: words, parameters, whether it saw NaN or infinity."""
    from qnumba.gpu import operations

    plan = make_plan(case.scheme, case.shape)
    words = device.empty(plan.words_shape, plan.words_dtype, case.offsets[1])
    source = put(device, x, case.offsets[0] * x.dtype.itemsize)
    options = Options(**case.options)
    params, seen = operations.quantize(source, plan, options, case.params, words)
    return words, params, seen


def check(device, case, x):
    """Compare everything the device computes of an array with the reference, bit for bit."""
    from qnumba.gpu import operations

    plan, options = make_plan(case.scheme, case.shape), Options(**case.options)
    expected = np.zeros(plan.words_shape, plan.words_dtype)
    params, nonfinite = reference.quantize(x, plan, options, case.params, expected)
    words, made, seen = quantized(device, case, x)
    if options.nonfinite == "raise":
        assert seen == nonfinite, f"{case}: nonfinite"
    if case.params is None:
        for name, one, other in zip(Params._fields, params, made, strict=True):
            if one is not None:
                assert_same_bits(host(other), np.asarray(one), f"{case}: {name}")
    if nonfinite and options.nonfinite == "raise":
        return
    assert_same_bits(words.get(), expected, f"{case}: words")
    dtype = DTYPES[case.decoded]
    numbers = np.empty(case.shape, dtype)
    reference.dequantize(expected, plan, params, numbers)
    stored = np.dtype("u2") if dtype == BFLOAT16 else dtype
    out = device.empty(case.shape, stored)
    operations.dequantize(words, plan, made, tagged(out, case.decoded))
    assert_same_bits(out.get().view(dtype), numbers, f"{case}: decoded")


def unwritten(device, array):
    """Return how many bytes of an array nobody wrote."""
    start = array.pointer - BASE
    return int((device.memory.state[start : start + array.size] == MAPPED).sum())
