"""The front door: check, plan, run one backend call, wrap the result."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.calibrate import block_finder, given_params, prepare
from qnumba.devices import is_cuda_array
from qnumba.errors import QuantizedTypeError, SchemeError
from qnumba.fields import dtype_name
from qnumba.formats import FLOATS
from qnumba.inputs import as_array, as_native, backend, cuda_home, float_dtype, nonfinite_error
from qnumba.params import (
    Method,
    Nonfinite,
    Options,
    Params,
    QParams,
    Rounding,
    ScaleRounding,
)
from qnumba.qarray import QArray
from qnumba.validate import as_scheme, require

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from qnumba.layout import Plan
    from qnumba.scheme import Scheme


def quantize(
    x: ArrayLike,
    scheme: Scheme | str,
    *,
    params: QParams | None = None,
    rounding: Rounding = "even",
    scale_rounding: ScaleRounding = "up",
    nonfinite: Nonfinite = "raise",
    method: Method = "minmax",
    out: QArray | None = None,
) -> QArray:
    """Quantize an array: code = clamp(round(x / scale)).

    Parameters
    ----------
    x : array_like
        Any shape and layout; float16, bfloat16, float32, float64 or integers up to 2**53. float64
        and integers are computed in float64, the others in float32.
    scheme : Scheme or str
        A scheme, its text form, or a preset's name such as ``"int8"`` or ``"nvfp4"``.
    params : QParams, optional
        Scales and zero points to use, from ``calibrate`` or another array. Default: calibrate.
    rounding : str
        Ties of integer codes: ``"even"``, or ``"away"`` from zero as burn's CPU backends do.
    scale_rounding : str
        How scales are stored; see ``calibrate``.
    nonfinite : str
        ``"raise"``; ``"clip"``: NaN becomes 0 and infinity an end of the range; ``"keep"``: E4M3
        and E5M2 keep what they have codes for.
    method : str
        How ranges are found where params is None; see ``calibrate``.
    out : QArray, optional
        An array of the same scheme and shape whose memory is used again.

    Returns
    -------
    QArray

    Raises
    ------
    SchemeError
        If the scheme does not fit the array, the options or the parameters.
    QuantizedTypeError
        If the array's dtype cannot be quantized.
    DataError
        If values are NaN or infinite and ``nonfinite="raise"``.

    Examples
    --------
    >>> q = quantize(np.array([0.0, 0.5, -1.0], np.float32), "int8")
    >>> q.codes().tolist()
    [0, 64, -127]
    """
    options = Options(rounding, scale_rounding, nonfinite, method)
    if is_cuda_array(x):
        return _quantize_on_cuda(x, scheme, params, options, out)
    array = as_array(x)
    layout = prepare(scheme, array, options)
    given = None if params is None else given_params(params, layout, options)
    native = as_native(array)
    if out is None:
        words = np.empty(layout.words_shape, layout.words_dtype)
        out = QArray(layout, words, None, source_dtype="")
    else:
        _require_out(out, layout, native)
    made = _provenance(array.dtype, options)
    if not _fill(out, backend(), native, layout, options, given, made):
        raise nonfinite_error(native, block_finder(layout))
    return out


def _fill(
    out: QArray,
    operations: Any,
    x: Any,
    layout: Plan,
    options: Options,
    given: Params | None,
    made: tuple[str, str],
) -> bool:
    """Quantize into ``out``; return False, and leave it empty, where values are to be refused."""
    out._params = None  # noqa: SLF001 - until the last code is written it holds nothing
    out._made = made  # noqa: SLF001
    used, seen = operations.quantize(x, layout, options, given, out._words)  # noqa: SLF001
    if seen and options.nonfinite == "raise":
        return False
    out._params = used  # noqa: SLF001
    return True


def _quantize_on_cuda(
    x: Any, scheme: Scheme | str, params: Any, options: Options, out: QArray | None
) -> QArray:
    """Do the same on a CUDA array; codes and parameters stay on its device."""
    home = cuda_home()
    source = home.opened(x)
    layout = prepare(scheme, source, options)
    given = None
    if params is not None:
        known = getattr(params, "stored_for", None) is layout
        on_host = isinstance(params, QParams) and not known
        given = given_params(home.host_params(params) if on_host else params, layout, options)
    native = home.native(source.view)
    if out is None:
        out = QArray(layout, home.new_words(layout, native), None, source_dtype="")
    else:
        _require_cuda_out(out, layout, native, home)
    made = _provenance(source.dtype, options)
    if not _fill(out, home.operations, native, layout, options, given, made):
        raise nonfinite_error(home.numbers_of(native), block_finder(layout))
    return out


def dequantize(
    q: Any, dtype: DTypeLike | str = np.float32, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return the numbers a quantized array stands for.

    Parameters
    ----------
    q : QArray
        The quantized array.
    dtype : dtype-like
        float32 (default), float64, float16 or bfloat16.
    out : numpy.ndarray, optional
        Where to put them; its dtype wins over ``dtype``.

    Returns
    -------
    numpy.ndarray
        Of the shape of ``q``.

    Raises
    ------
    QuantizedTypeError
        If ``q`` is not quantized, or the dtype is not one of those.
    SchemeError
        If ``out`` has another shape or cannot be written.
    """
    if not isinstance(q, QArray):
        message = f"Expected a quantized array, got {type(q).__name__}; call quantize() first"
        raise QuantizedTypeError(message)
    return q.dequantize(dtype, out)


def warmup(scheme: Scheme | str, *, dtype: DTypeLike = np.float32) -> float:
    """Compile the kernels of a scheme, or load them from the disk cache, before they are needed.

    Parameters
    ----------
    scheme : Scheme or str
        The scheme that will be used.
    dtype : dtype-like
        Dtype of the arrays to come.

    Returns
    -------
    float
        Seconds it took.

    Raises
    ------
    SchemeError
        If it is not a scheme.
    QuantizedTypeError
        If the dtype cannot be quantized.
    """
    known, name = as_scheme(scheme), dtype_name(dtype)
    shape = (2,) * max(len(known.block or ()), known.pack_axis + 1)
    require(known, shape, name)
    start = time.perf_counter()
    numbers = np.ones(shape, float_dtype(name) if name in FLOATS else name)
    quantize(numbers, known).dequantize()
    return time.perf_counter() - start


@lru_cache
def _provenance(dtype: np.dtype[Any], options: Options) -> tuple[str, str]:
    """Return what an array remembers of its making: the source's dtype and the options."""
    text = " ".join(f"{name}={choice}" for name, choice in options._asdict().items())
    return dtype.name, text


def _require_out(out: Any, layout: Plan, x: NDArray[Any]) -> None:
    """Refuse an ``out`` whose memory does not fit or overlaps the input."""
    if not isinstance(out, QArray):
        message = f"out is a {type(out).__name__}; give a QArray of this scheme and shape"
        raise QuantizedTypeError(message)
    words = out._words  # noqa: SLF001
    problem = ""
    if is_cuda_array(words):
        problem = "is on a CUDA device"
    elif out._plan is not layout and (out.scheme, out.shape) != (layout.scheme, layout.shape):  # noqa: SLF001
        problem = f"holds {str(out.scheme)!r} of shape {out.shape}"
    elif not words.flags.writeable:
        problem = "is read-only, as arrays read from bytes are"
    elif np.may_share_memory(words, x):
        problem = "shares memory with the input"
    _refuse_out(problem, out, layout)


def _require_cuda_out(out: Any, layout: Plan, x: Any, home: Any) -> None:
    """Refuse an ``out`` that a CUDA array cannot be quantized into."""
    if not isinstance(out, QArray):
        message = f"out is a {type(out).__name__}; give a QArray of this scheme and shape"
        raise QuantizedTypeError(message)
    problem = home.require_words(layout, out._words, x)  # noqa: SLF001
    if (out.scheme, out.shape) != (layout.scheme, layout.shape):
        problem = f"holds {str(out.scheme)!r} of shape {out.shape}"
    _refuse_out(problem, out, layout)


def _refuse_out(problem: str, out: QArray, layout: Plan) -> None:
    if problem:
        wanted = f"{str(layout.scheme)!r} and shape {layout.shape}"
        fix = f"give a writeable QArray of {wanted}, or leave out= away"
        raise SchemeError(f"out {problem}; {fix}", field="out", value=out, fix=fix)
