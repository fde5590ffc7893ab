"""The CUDA backend: the same five operations, on the arrays of any CUDA library.

Importing it needs numba-cuda, from one of the extras ``cuda12`` and ``cuda13``. The package is not
called cuda: numba-cuda's import hook takes every name that contains ``numba.cuda`` for its own, and
``qnumba.cuda`` does (numba-cuda 0.30).
"""

from qnumba.devices import require_numba_cuda

require_numba_cuda()

from qnumba.gpu.operations import calibrate, dequantize, pack, quantize, unpack  # noqa: E402

__all__ = ["calibrate", "dequantize", "pack", "quantize", "unpack"]
