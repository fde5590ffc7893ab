"""CUDA arrays where there is no CUDA backend: one clear error, and nothing of CUDA is imported."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import qnumba as qn
from qnumba import devices


class OnDevice:
    """An array that says it is on a CUDA device."""

    __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (0, False), "version": 3}


def test_the_error_names_the_extra(monkeypatch):
    import numba.cuda

    monkeypatch.setattr(numba.cuda, "implementation", "Built-in", raising=False)
    for call in (qn.quantize, qn.calibrate):
        with pytest.raises(qn.UnsupportedSchemeError, match=r"qnumba\[cuda12\]"):
            call(OnDevice(), "int8")


def test_what_is_a_cuda_array():
    class Elsewhere:
        def __dlpack_device__(self):
            return (2, 0)

    assert devices.is_cuda_array(OnDevice())
    assert devices.is_cuda_array(Elsewhere())
    for x in (np.zeros(3), [1.0], 1.0, np.float32(1), memoryview(b"ab")):
        assert not devices.is_cuda_array(x)


def test_the_host_path_never_loads_cuda():
    program = (
        "import sys, numpy, qnumba; qnumba.quantize(numpy.ones(4), 'int8').dequantize();"
        "assert not [name for name in sys.modules if name.startswith(('numba.cuda', 'qnumba.gpu'))]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
