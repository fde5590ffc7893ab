"""Which arrays are on a CUDA device, told without importing the library that made them."""

from __future__ import annotations

from typing import Any

import numpy as np

from qnumba.errors import UnsupportedSchemeError

_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


def is_cuda_array(x: Any) -> bool:
    """Return whether an object is an array on a CUDA device."""
    if isinstance(x, (np.ndarray, np.generic, list, tuple, int, float)):
        return False
    if type(x).__module__.partition(".")[0] == "torch":
        return bool(getattr(x, "is_cuda", False))
    if hasattr(x, "__cuda_array_interface__"):
        return True
    device = getattr(x, "__dlpack_device__", None)
    return device is not None and int(device()[0]) in _DLPACK_CUDA


def require_numba_cuda() -> None:
    """Refuse an installation without numba-cuda: what Numba itself brings is not enough.

    Raises
    ------
    UnsupportedSchemeError
        Naming the extra to install.
    """
    try:
        from numba import cuda  # noqa: PLC0415 - must not load with the package

        found = getattr(cuda, "implementation", "")
    except ImportError:
        found = ""
    if found != "NVIDIA":
        fix = 'pip install "qnumba[cuda12]" or "qnumba[cuda13]"'
        message = f"CUDA arrays need numba-cuda, which is missing; {fix}; or pass NumPy arrays"
        raise UnsupportedSchemeError(message, field="x", fix=fix)
