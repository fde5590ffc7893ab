"""Matrix products with quantized arrays: the front door, by the rules of ``numpy.matmul``."""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.devices import is_cuda_array
from qnumba.errors import QuantizedTypeError, SchemeError, UnsupportedSchemeError
from qnumba.fields import NUMBERS
from qnumba.formats import FLOATS
from qnumba.inputs import as_array, as_native
from qnumba.memo import memo
from qnumba.moves.held import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from numpy.typing import NDArray

_PIECE = 2**22  # elements of the smaller of two quantized arrays taken at a time


def matmul(a: Any, b: Any) -> NDArray[Any]:
    """Return the matrix product of two arrays of which one or both are quantized: ``a @ b``.

    Quantized arrays are decoded in registers or some rows at a time, never as a whole.

    Parameters
    ----------
    a, b : QArray or array_like
        Shapes as ``numpy.matmul`` takes them: (..., m, k) and (..., k, n), leading axes broadcast;
        an array of one axis is a row as ``a`` and a column as ``b``, and its axis goes. What is not
        quantized is float16, bfloat16, float32, float64 or integers (taken as float64).

    Returns
    -------
    numpy.ndarray
        Of shape (..., m, n). float64, and computed so, where the array that is not quantized is
        float64 or integers; else float32. The error of an element is at most
        ``(k + 4) * u * (|a| @ |b|)``, where a and b are the decoded numbers and u is 2**-24, or
        2**-53 for float64 (Higham, "Accuracy and Stability of Numerical Algorithms", 3.1).

    Raises
    ------
    QuantizedTypeError
        If neither is quantized, or if one is of another dtype.
    SchemeError
        If the shapes do not fit.
    UnsupportedSchemeError
        If a quantized array is on a CUDA device.

    Examples
    --------
    >>> import qnumba as qn
    >>> weights = qn.quantize(np.eye(3, 4, dtype=np.float32), "int8")
    >>> matmul(weights, np.array([1, 2, 3, 4], np.float32))
    array([1., 2., 3.], dtype=float32)
    """
    if not (_is_quantized(a) or _is_quantized(b)):
        message = "neither array is quantized; use numpy.matmul, or quantize() one of them"
        raise QuantizedTypeError(message)
    left, right = _checked(a), _checked(b)
    is_wide = any(side.dtype == np.float64 for side in (left, right))
    dtype = np.dtype(np.float64 if is_wide else np.float32)
    inner = _inner_shapes(left.shape, right.shape)
    first, second = _as_matrices(left, right, dtype)
    result = _product(first, second, dtype)
    batch = result.shape[:-2]
    return np.ascontiguousarray(result).reshape(batch + inner)[()]


def call_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Do what a NumPy ufunc asks of a quantized array: multiply matrices.

    Raises
    ------
    QuantizedTypeError
        For all arithmetic on elements, which would hide the cost of decoding.
    """
    if ufunc is not np.matmul or method != "__call__":
        message = f"Should be float, got quantized: {ufunc.__name__} needs q.dequantize() first"
        raise QuantizedTypeError(message)
    if options:
        names = ", ".join(f"{name}=" for name in options)
        message = f"matmul of a quantized array does not take {names}; leave it out"
        raise QuantizedTypeError(message)
    return matmul(*inputs)


class Side(NamedTuple):
    """One side of a product as matrices: all rows are summed along, or, ``is_across``, down.

    ``array`` has the shape (..., rows, cols) in which it is stored, quantized or not.
    """

    array: Any
    is_across: bool

    @property
    def is_quantized(self) -> bool:
        """Whether it holds codes."""
        return _is_quantized(self.array)

    @property
    def batch(self) -> tuple[int, ...]:
        """The axes before the matrices."""
        return tuple(self.array.shape[:-2])

    @property
    def extent(self) -> int:
        """How many lines there are to multiply."""
        return int(self.array.shape[-1 if self.is_across else -2])

    def lines(self) -> NDArray[Any]:
        """Return the numbers of a matrix that is not quantized, a line each: (extent, k)."""
        matrix: NDArray[Any] = self.array
        return matrix.T if self.is_across else matrix

    def at(self, index: tuple[int, ...]) -> Side:
        """Return one matrix of a batch; axes of extent 1, and missing ones, serve all."""
        own = index[len(index) - len(self.batch) :]
        place = tuple(i if extent > 1 else 0 for i, extent in zip(own, self.batch, strict=True))
        return Side(self.array[place] if place else self.array, self.is_across)


def _is_quantized(x: Any) -> bool:
    return bool(getattr(type(x), "is_quantized", False))


def _checked(x: Any) -> Any:
    """Return a quantized array on the host, or an array of numbers."""
    if _is_quantized(x):
        if is_cuda_array(x._words):  # noqa: SLF001 - where it is
            fix = "call q.to_host() first, or multiply q.dequantize()"
            raise UnsupportedSchemeError(f"matmul runs on the host only; {fix}", field="q", fix=fix)
        return x
    array = as_array(x)
    _require_numbers(array.dtype)
    return as_native(array)


@memo
def _require_numbers(dtype: np.dtype[Any]) -> None:
    if dtype.name not in NUMBERS:
        known = ", ".join((*FLOATS, "integers"))
        raise QuantizedTypeError(f"matmul takes {known}; got {dtype}: convert it first")


def _inner_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return what follows the batch in the shape of the product, or refuse the shapes."""
    fix = "give (..., m, k) and (..., k, n)"
    if not a or not b:
        message = f"matmul of shapes {a} and {b}: a number has no axis to sum along; {fix}"
        raise SchemeError(message, field="shape", value=(a, b), fix=fix)
    along = b[-2] if len(b) > 1 else b[0]
    if a[-1] != along:
        message = f"matmul of shapes {a} and {b}: {a[-1]} is not {along}; {fix} with one k"
        raise SchemeError(message, field="shape", value=(a, b), fix=fix)
    try:
        np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        message = f"matmul of shapes {a} and {b}: the leading axes do not broadcast; {fix}"
        raise SchemeError(message, field="shape", value=(a, b), fix=fix) from None
    return a[-2:-1] + (b[-1:] if len(b) > 1 else ())


def _as_matrices(a: Any, b: Any, dtype: np.dtype[Any]) -> tuple[Side, Side]:
    """Return both sides with at least two axes; a column is kept as the row it is stored as."""
    sides = []
    for side, is_across in ((a, False), (b, b.ndim > 1)):
        array = side if _is_quantized(side) else side.astype(dtype, copy=False)
        sides.append(Side(array.reshape(1, -1) if array.ndim == 1 else array, is_across))
    return sides[0], sides[1]


def _product(a: Side, b: Side, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the product (..., m, n) of matrices and batches of them."""
    batch = np.broadcast_shapes(a.batch, b.batch)
    if not b.batch and batch and not a.is_quantized:  # all rows of the batch at once
        lines = a.array.reshape(-1, a.array.shape[-1])
        return _of_matrices(Side(lines, a.is_across), b).reshape(*batch, a.extent, b.extent)
    if not a.batch and batch and not b.is_quantized:
        lines = np.moveaxis(b.array, -2, -1) if b.is_across else b.array
        flat = lines.reshape(-1, lines.shape[-1])
        turned = _of_matrices(a, Side(flat, is_across=False))
        turned = turned.reshape(a.extent, *batch, b.extent)
        return np.moveaxis(turned, 0, -2)
    out = np.empty((*batch, a.extent, b.extent), dtype)
    for index in np.ndindex(batch):
        out[index] = _of_matrices(a.at(index), b.at(index))
    return out


def _of_matrices(a: Side, b: Side) -> NDArray[Any]:
    """Return the product (m, n) of two matrices."""
    if not (a.array.size and b.array.size):
        return np.zeros((a.extent, b.extent), np.result_type(a.array.dtype, b.array.dtype))
    with np.errstate(all="ignore"):  # NaN and infinity go on as they do in any product
        if not b.is_quantized:
            return _by_numbers(a, b.lines())
        if not a.is_quantized:
            return _by_numbers(b, a.lines()).T
        return _by_codes(a, b)


def _by_numbers(q: Side, x: NDArray[Any]) -> NDArray[Any]:
    """Return the dots (extent, n) of a quantized matrix and lines of numbers (n, k)."""
    products = _products()
    matrix = products.Matrix(*_words_of(q.array))
    if q.is_across:
        return products.across_rows(matrix, x).T  # type: ignore[no-any-return]
    found = products.codes_by_floats(matrix, x) if x.dtype == np.float32 else None
    return products.along_rows(matrix, x) if found is None else found  # type: ignore[no-any-return]


def _by_codes(a: Side, b: Side) -> NDArray[Any]:
    """Return the product of two quantized matrices: pieces of the smaller meet the larger.

    Integers that have no path of their own are multiplied in float64, which holds their products.
    """
    is_turned = a.array.size < b.array.size
    small, large = (a, b) if is_turned else (b, a)
    wide = np.float64 if _is_integer(a.array) and _is_integer(b.array) else np.float32
    out = np.empty((large.extent, small.extent), np.float32)
    for piece, columns in _pieces(small):
        found = None if large.is_across else _as_integers(large, piece)
        if found is None:
            numbers = Side(piece.array.dequantize(wide), piece.is_across)
            found = _by_numbers(large, numbers.lines())
        out[:, columns] = found
    return out.T.copy() if is_turned else out


def _is_integer(q: Any) -> bool:
    return parts_of(q).plan.value.kind != "float" and q.scheme.mode != "lookup"


def _as_integers(large: Side, small: Side) -> NDArray[Any] | None:
    """Return the dots (extent, n) of two matrices of integer codes, or None for any other."""
    parts = parts_of(small.array)
    if parts.plan.value.kind != "int" or parts.scheme.mode != "symmetric":
        return None
    share = np.float32(1 if parts.params.global_scale is None else parts.params.global_scale)
    scales = parts.params.scales * share
    scales = scales.reshape(parts.plan.grid or (1, 1))
    codes, block = small.array.codes(), parts.plan.block
    if small.is_across:
        codes, scales, block = codes.T, scales.T, block[::-1]
    height, along = (max(1, extent) for extent in block)
    scales = scales[np.arange(len(codes)) // height]
    products = _products()
    matrix = products.Matrix(*_words_of(large.array))
    return products.codes_by_codes(matrix, codes, scales, along)  # type: ignore[no-any-return]


def _pieces(side: Side) -> Iterator[tuple[Side, slice]]:
    """Yield the lines of a matrix in pieces of bounded size, cut at edges of blocks or in one."""
    axis = 1 if side.is_across else 0
    extent, block = side.extent, max(1, parts_of(side.array).plan.block[axis])
    step = max(1, _PIECE // max(1, int(side.array.shape[1 - axis])))
    if step >= extent:
        yield side, slice(0, extent)
        return
    step -= step % block if block <= step else 0
    edges = sorted({*range(0, extent, step), *range(0, extent, max(step, block)), extent})
    for start, stop in itertools.pairwise(edges):
        span = slice(start, stop)
        cut = (slice(None), span) if side.is_across else span
        yield Side(side.array[cut], side.is_across), span


def _words_of(q: Any) -> tuple[Any, Any, Any]:
    parts = parts_of(q)
    return parts.words, parts.plan, parts.params


@cache
def _products() -> ModuleType:
    """Return the module that multiplies on the CPU; the first product loads Numba."""
    from qnumba.cpu import products  # noqa: PLC0415 - loads Numba

    return products
