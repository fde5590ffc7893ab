"""Whether CUDA kernels can be compiled here, and what to say if not."""

from __future__ import annotations

from qnumba.errors import UnsupportedSchemeError


def require_numba_cuda() -> None:
    """Refuse an installation without numba-cuda: what Numba itself brings is not enough.

    Raises
    ------
    UnsupportedSchemeError
        Naming the extra to install.
    """
    try:
        from numba import cuda  # noqa: PLC0415 - must not load with the package
    except ImportError:
        cuda = None
    if getattr(cuda, "implementation", "") != "NVIDIA":
        fix = 'pip install "qnumba[cuda12]" or "qnumba[cuda13]"'
        message = (
            f"CUDA arrays need numba-cuda, which is not installed; {fix}, or pass NumPy arrays"
        )
        raise UnsupportedSchemeError(message, field="x", fix=fix)
