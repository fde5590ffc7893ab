"""QArray: what was got. Codes in words, the parameters, and the way back to numbers."""

from __future__ import annotations

import html
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from qnumba import moves, serialize
from qnumba.devices import is_cuda_array
from qnumba.errors import QuantizedTypeError, SchemeError, cut
from qnumba.fields import dtype_name
from qnumba.formats import FLOATS
from qnumba.inputs import backend, cuda_home, decode_target, float_dtype
from qnumba.layout import Plan, plan
from qnumba.matmul import call_ufunc
from qnumba.order import Order
from qnumba.params import Params, QParams, public_params, read_only
from qnumba.validate import as_scheme, as_shape, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray

    from qnumba.scheme import Scheme


class QArray(Order, NDArrayOperatorsMixin):
    """A quantized array. Made by ``quantize``, ``QArray.from_bytes`` and ``QArray.from_record``.

    Attributes
    ----------
    scheme : Scheme
        How numbers became codes.
    shape : tuple of int
        Shape of the array that was quantized.
    source_dtype : str
        Name of the dtype of the array that was quantized.
    options : str
        The rounding and calibration rules that made the codes, as text; empty if not known.
    """

    is_quantized = True

    def __init__(
        self,
        layout: Plan,
        words: NDArray[Any],
        params: Params | None,
        *,
        source_dtype: str,
        options: str = "",
    ) -> None:
        self._plan = layout
        self._words = words
        self._params = params
        self._made = (source_dtype, options)

    # --- what it holds

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """What ``np.asarray(q)`` gives: float32."""
        return np.dtype(np.float32)

    @property
    def words(self) -> NDArray[Any]:
        """The codes as stored, packed as the scheme's store says. A read-only view."""
        self._filled()
        words: NDArray[Any] = read_only(self._words)
        return words

    @property
    def params(self) -> QParams:
        """Scales, global scale and zero points together."""
        return public_params(self._filled(), self._plan)

    @property
    def scales(self) -> NDArray[np.float32]:
        """Scales as stored: float32, shaped like the block grid, ``()`` per tensor. Read-only."""
        return self.params.scales

    @property
    def global_scale(self) -> np.float32 | None:
        """The per-tensor scale of a two-level scheme, else None."""
        return self.params.global_scale

    @property
    def zero_points(self) -> NDArray[np.int32] | None:
        """int32 zero points shaped like the scales in affine mode, else None. Read-only."""
        return self.params.zero_points

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and zero points, as a record holds them."""
        return serialize.record_size(self._plan)

    @property
    def bits_per_value(self) -> float:
        """Bits an element takes, scales and padding included; NaN for an empty array."""
        return 8 * self.nbytes / self.size if self.size else float("nan")

    def codes(self) -> NDArray[Any]:
        """Return one integer per element, in the array's shape.

        Returns
        -------
        numpy.ndarray
            int8 for Q* value types, uint8 for U*, for minifloat patterns and lookup indices.
            Read-only where it is a view of the words.
        """
        self._filled()
        if self.scheme.store == "native":
            return self.words
        if is_cuda_array(self._words):
            return cuda_home().codes(self._plan, self._words)  # type: ignore[no-any-return]
        codes = np.empty(self.shape, self._plan.code_dtype)
        backend().unpack(self._words, self._plan, codes)
        return codes

    # --- back to numbers

    def dequantize(
        self, dtype: DTypeLike | str = np.float32, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return the numbers the codes stand for.

        Parameters
        ----------
        dtype : dtype-like
            float32 (default), float64, float16 or bfloat16. float64 is computed in float64, the
            others in float32 and rounded once.
        out : numpy.ndarray, optional
            Where to put them: an array of this shape and of a float dtype, which wins over
            ``dtype``.

        Returns
        -------
        numpy.ndarray
            Of this array's shape; ``out`` if it was given.

        Raises
        ------
        QuantizedTypeError
            If the dtype is not one of those.
        SchemeError
            If ``out`` has another shape or cannot be written.
        """
        params = self._filled()
        if is_cuda_array(self._words):
            return cuda_home().dequantize(self._plan, self._words, params, dtype, out)  # type: ignore[no-any-return]
        made = np.empty(self.shape, float_dtype(dtype)) if out is None else out
        plain = out is None and made.dtype.isnative
        target = made if plain else decode_target(made, self.shape, self._words)
        backend().dequantize(self._words, self._plan, params, target)
        if target is not made:
            made[...] = target
        return made

    def __array__(
        self,
        dtype: DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001 - NumPy's
    ) -> NDArray[Any]:
        """Dequantize for ``np.asarray``; there is no way to do so without making an array."""
        if is_cuda_array(self._words):
            return self.to_host().__array__(dtype, copy)
        if copy is False:
            message = "a quantized array holds codes, so its numbers are always a copy"
            raise ValueError(message)
        if dtype is None or np.dtype(dtype).name in FLOATS:
            return self.dequantize(np.float32 if dtype is None else dtype)
        return self.dequantize().astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Multiply matrices, ``q @ x``; refuse arithmetic: it would hide the cost of decoding."""
        return call_ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self, function: Any, _types: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Do what NumPy's functions that move or compare do, and refuse all others."""
        return moves.call(function, arguments, options)

    # --- where it is

    def to_host(self) -> QArray:
        """Return this array in the host's memory; itself if it is there."""
        if not is_cuda_array(self._words):
            return self
        return self._with(*self._on_host())

    def to_device(self, like: Any = None) -> QArray:
        """Return this array on a CUDA device; itself if it is on one.

        Parameters
        ----------
        like : CUDA array, optional
            Whose device, stream and kind to use; else Numba's arrays on the current device.

        Returns
        -------
        QArray
        """
        if is_cuda_array(self._words):
            return self
        return self._with(*cuda_home().to_device(self._words, self._filled(), like))

    def _with(self, words: Any, params: Params) -> QArray:
        return QArray(
            self._plan, words, params, source_dtype=self.source_dtype, options=self.options
        )

    def _on_host(self) -> tuple[NDArray[Any], Params]:
        if is_cuda_array(self._words):
            return cuda_home().to_host(self._plan, self._words, self._filled())  # type: ignore[no-any-return]
        return self._words, self._filled()

    # --- bytes

    def to_record(self) -> bytes:
        """Return burn's dense layout: values, zero points, scales, global scale; little-endian."""
        return serialize.to_record(self._plan, *self._on_host())

    @classmethod
    def from_record(
        cls, data: Any, scheme: Scheme | str, shape: Sequence[int], *, dtype: DTypeLike = "float32"
    ) -> QArray:
        """Read a record.

        Parameters
        ----------
        data : bytes-like
            Exactly as long as the scheme and shape say.
        scheme : Scheme or str
            The scheme it was written with.
        shape : sequence of int
            Shape of the array.
        dtype : dtype-like
            Dtype of the array that was quantized; its name is kept as ``source_dtype``.

        Returns
        -------
        QArray

        Raises
        ------
        DecodeError
            If the length is not exact or a scale is not a scale.
        SchemeError
            If the scheme does not fit the shape.
        QuantizedTypeError
            If arrays of the dtype cannot be quantized, or ``data`` is no buffer.
        """
        known, sizes, name = as_scheme(scheme), as_shape(shape), dtype_name(dtype)
        require(known, sizes, name)
        layout = plan(known, sizes)
        words, params = serialize.from_record(data, layout)
        return cls(layout, words, params, source_dtype=name)

    def to_bytes(self) -> bytes:
        """Return self-describing, checksummed bytes, which ``QArray.from_bytes`` reads."""
        return serialize.to_bytes(
            self._plan, *self._on_host(), dtype=self.source_dtype, options=self.options
        )

    @classmethod
    def from_bytes(cls, data: Any) -> QArray:
        """Read what ``to_bytes`` wrote, without copying the codes where the buffer allows.

        Parameters
        ----------
        data : bytes-like
            bytes, a memoryview, an mmap or a memory-mapped uint8 array.

        Returns
        -------
        QArray

        Raises
        ------
        DecodeError
            If the bytes are damaged, truncated, extended, or not a container.
        """
        found = serialize.from_bytes(data)
        layout = plan(found.scheme, found.shape)
        return cls(
            layout,
            found.words,
            found.params,
            source_dtype=found.dtype,
            options=found.options,
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as the container's bytes."""
        return (QArray.from_bytes, (self.to_bytes(),))

    # --- comparing and showing

    def __eq__(self, other: object) -> bool:
        """Compare two whole arrays by bits: the same scheme, shape, codes and parameters.

        A number or an array that is not quantized is refused, as by all elementwise operators;
        anything else is not equal.
        """
        if not isinstance(other, QArray):
            numbers = isinstance(other, Number) or hasattr(other, "__array__")
            return NDArrayOperatorsMixin.__eq__(self, other) if numbers else NotImplemented
        if is_cuda_array(self._words) or is_cuda_array(other._words):
            return self.to_host() == other.to_host()
        same = (self.scheme, self.shape) == (other.scheme, other.shape)
        return (
            same
            and self.params == other.params
            and np.array_equal(self.words.view(np.uint8), other.words.view(np.uint8))
        )

    def __ne__(self, other: object) -> bool:
        """Return the opposite of ``==``."""
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, item: object) -> bool:
        """Refuse ``in``: it would compare numbers one by one."""
        message = f"{cut(repr(item))} in an array: Should be float, got quantized; "
        raise QuantizedTypeError(message + "look in q.dequantize()")

    def __len__(self) -> int:
        """Return the extent of the first axis."""
        if not self.shape:
            message = "an array without axes has no length"
            raise TypeError(message)
        return self.shape[0]

    def __repr__(self) -> str:
        """Return one line; the numbers are not shown."""
        rate = f"{self.bits_per_value:.4g} bits per value, " if self.size else ""
        held = f"{rate}{self.nbytes:,} bytes" if self._params else "not filled: quantize into it"
        return f"QArray(shape={self.shape}, scheme={str(self.scheme)!r}, {held})"

    def _repr_html_(self) -> str:
        """Return a small table for notebooks."""
        rows = {
            "scheme": str(self.scheme),
            "shape": str(self.shape),
            "quantized from": self.source_dtype,
            "scales": str(self._plan.grid),
            "bytes": f"{self.nbytes:,}",
            "bits per value": f"{self.bits_per_value:.4g}" if self.size else "none",
        }
        cells = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
            for name, text in rows.items()
        )
        return f"<table><caption>QArray</caption>{cells}</table>"

    def _filled(self) -> Params:
        """Return the parameters, or refuse an array whose quantization did not finish."""
        if self._params is None:
            fix = "quantize into it again"
            message = f"this array was given as out= and its quantization did not finish; {fix}"
            raise SchemeError(message, field="out", fix=fix)
        return self._params


def scheme_of(q: Any) -> Scheme:
    """Return the scheme of a quantized array.

    Parameters
    ----------
    q : QArray
        The quantized array.

    Returns
    -------
    Scheme

    Raises
    ------
    QuantizedTypeError
        For anything that is not quantized.
    """
    if isinstance(q, QArray):
        return q.scheme
    kind = getattr(q, "dtype", type(q).__name__)
    message = f"Quantization scheme is not valid for dtype {kind}; call quantize() first"
    raise QuantizedTypeError(message)
