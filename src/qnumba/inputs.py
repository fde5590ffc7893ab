"""The door for arrays: whatever the caller has becomes a native C-contiguous array, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.devices import is_cuda_array, require_numba_cuda
from qnumba.errors import DataError, QuantizedTypeError, SchemeError, cut
from qnumba.fields import dtype_of
from qnumba.formats import FLOATS
from qnumba.memo import memo

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

_EXACT = 2**53
_CHUNK = 1 << 22


def as_array(x: Any) -> NDArray[Any]:
    """Return an array-like as a plain NumPy array, without changing dtype or layout.

    Raises
    ------
    QuantizedTypeError
        For a quantized array, a masked array, or what NumPy cannot make an array of numbers of.
    """
    if type(x) is np.ndarray:
        return x
    if getattr(type(x), "is_quantized", False):
        message = "Should be float, got quantized; call dequantize() first"
        raise QuantizedTypeError(message)
    if isinstance(x, np.ma.MaskedArray):
        message = "masked arrays have no one meaning here; pass x.filled(v) with a value v"
        raise QuantizedTypeError(message)
    if is_cuda_array(x):
        fix = "pass both on one side: NumPy arrays, or CUDA arrays"
        message = f"{type(x).__name__} is on a CUDA device, the rest is not; {fix}"
        raise QuantizedTypeError(message)
    try:
        found = np.asarray(x)
    except MemoryError:
        raise
    except Exception as error:  # its __array__ may raise anything
        message = f"{type(x).__name__} does not convert to an array of numbers: {error}"
        raise QuantizedTypeError(message) from error
    if found.dtype.kind in "OUS" and not isinstance(x, np.ndarray):
        message = f"{cut(repr(x))} is no array of numbers; give a NumPy array, a list or a number"
        raise QuantizedTypeError(message)
    return found


def as_native(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as the backends take it: a float, native, aligned and C-contiguous.

    Integers become float64; everything else keeps its dtype. The array is copied only if needed.

    Raises
    ------
    DataError
        For integers beyond 2**53, which float64 cannot hold.
    """
    dtype, flags = array.dtype, array.flags
    if dtype.kind not in "iu" and dtype.isnative and flags.c_contiguous and flags.aligned:
        return array
    if dtype.kind in "iu":
        if dtype.itemsize == 8 and array.size:  # noqa: PLR2004 - only these can be too large
            _require_exact(array)
        array = array.astype(np.float64, order="C")
    elif not dtype.isnative:
        array = array.astype(dtype.newbyteorder("="), order="C")
    return np.require(array, requirements=["C", "A"])


def _require_exact(array: NDArray[Any]) -> None:
    lo, hi = int(array.min()), int(array.max())
    worst = hi if hi > -lo else lo
    if abs(worst) > _EXACT:
        message = (
            f"the integer {worst} is beyond 2**53, where float64 stops being exact; "
            "scale the data down, or convert it yourself with astype(np.float64)"
        )
        raise DataError(message)


@memo
def float_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype to decode to.

    Raises
    ------
    QuantizedTypeError
        If it is not float16, bfloat16, float32 or float64, or if it is bfloat16 and the package
        that gives NumPy that dtype is not installed.
    """
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            import ml_dtypes  # noqa: PLC0415 - an extra, needed only here
        except ImportError as error:
            message = 'bfloat16 arrays need ml_dtypes: pip install "qnumba[ml]"'
            raise QuantizedTypeError(message) from error
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    found = dtype_of(dtype)
    if found is None or found.name not in FLOATS:
        message = f"cannot decode to {cut(repr(dtype))}; use one of {', '.join(FLOATS)}"
        raise QuantizedTypeError(message)
    return found


def decode_target(out: Any, shape: tuple[int, ...], words: NDArray[Any]) -> NDArray[Any]:
    """Return where to decode ``words`` to: ``out``, or an array to copy into it afterwards.

    Raises
    ------
    QuantizedTypeError
        If ``out`` is no array of a float dtype.
    SchemeError
        If it has another shape or cannot be written.
    """
    if not isinstance(out, np.ndarray):
        message = f"out is a {type(out).__name__}; give a NumPy array"
        raise QuantizedTypeError(message)
    dtype = float_dtype(out.dtype)
    if out.shape != shape or not out.flags.writeable:
        fix = f"give a writeable array of shape {shape}"
        problem = f"has shape {out.shape}" if out.shape != shape else "cannot be written"
        raise SchemeError(f"out {problem}; {fix}", field="out", value=out.shape, fix=fix)
    plain = out.flags.c_contiguous and out.flags.aligned and dtype.isnative
    if plain and not np.may_share_memory(out, words):
        return out
    return np.empty(shape, dtype.newbyteorder("="))


def backend() -> ModuleType:
    """Return the module that runs on NumPy arrays. Imported here, so that Numba loads late."""
    from qnumba import cpu  # noqa: PLC0415 - the first kernel loads Numba, not import qnumba

    return cpu


def cuda_home() -> ModuleType:
    """Return the module that lets CUDA arrays in and out. Imported here: it loads CUDA.

    Raises
    ------
    UnsupportedSchemeError
        Without numba-cuda, naming the extra to install.
    """
    require_numba_cuda()
    from qnumba.gpu import home  # noqa: PLC0415 - the first CUDA array loads it

    return home


def nonfinite_error(array: NDArray[Any], block_of: Any) -> DataError:
    """Return the error that names how many values are not finite, and where the first is.

    An array that another thread writes to may hold none of them any more.
    """
    flat = array.reshape(-1)
    counts = {"NaN": 0, "infinite": 0}
    first = -1
    for start in range(0, flat.size, _CHUNK):
        with np.errstate(invalid="ignore"):  # a signalling NaN is as good as any
            chunk = flat[start : start + _CHUNK].astype(np.float64)
        bad = ~np.isfinite(chunk)
        if bad.any() and first < 0:
            first = start + int(bad.argmax())
        counts["NaN"] += int(np.isnan(chunk).sum())
        counts["infinite"] += int(np.isinf(chunk).sum())
    if first < 0:
        message = "the array held NaN or infinity, and does not now; leave it alone meanwhile"
        return DataError(message)
    index = tuple(int(i) for i in np.unravel_index(first, array.shape))
    where = str(index[0]) if len(index) == 1 else str(index)
    found = " and ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    message = (
        f"the array holds {found} of {array.size} values, the first at index {where} "
        f"(block {block_of(index)}); replace them, or pass nonfinite='clip' (NaN to 0, infinity to "
        "the end of the range), or 'keep' for E4M3 and E5M2"
    )
    return DataError(message)
