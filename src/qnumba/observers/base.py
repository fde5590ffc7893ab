"""What all observers share: the door for chunks, merging, and the way from a range to parameters.

A subclass says three things: the summary of one chunk, the summary of two summaries, and the range
of a summary. Everything else follows from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from qnumba.calibrate import block_finder, calibrate
from qnumba.errors import DataError, DecodeError, QuantizedTypeError, SchemeError, cut
from qnumba.inputs import as_array, as_native, nonfinite_error
from qnumba.layout import Plan, plan
from qnumba.params import Method, Nonfinite, Options, QParams, ScaleRounding
from qnumba.scheme import Scheme
from qnumba.validate import as_scheme, as_shape, require, require_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

Summary = dict[str, Any]  # arrays and numbers by name
Range = tuple["NDArray[Any]", "NDArray[Any]"]

_WHOLE = Scheme("Q8S")  # any scheme without blocks


class Observer(ABC):
    """Calibrates an array that comes in chunks.

    Parameters
    ----------
    scheme : Scheme or str, optional
        What the parameters will be for. Only its block matters while observing: it says which
        elements share a range. Without a block (or without a scheme) that is the whole array, and
        chunks may have any shapes. With a block all chunks have one shape, and corresponding
        blocks of all chunks share a range.
    nonfinite : str
        ``"raise"``; ``"clip"`` or ``"keep"``: look at finite values only, as ``calibrate`` does.
    """

    settings: ClassVar[tuple[str, ...]] = ()  # arguments of a subclass, kept as attributes
    free: ClassVar[tuple[str, ...]] = ()  # parts of a summary that are not shaped like the grid
    method: ClassVar[Method] = "minmax"

    def __init__(
        self, scheme: Scheme | str | None = None, *, nonfinite: Nonfinite = "raise"
    ) -> None:
        self.scheme = None if scheme is None else as_scheme(scheme)
        self.nonfinite: Nonfinite = nonfinite
        self.chunks = 0
        self._shape: tuple[int, ...] | None = None
        self._dtype = np.dtype(np.float32)
        self._summary: Summary | None = None
        if nonfinite not in {"raise", "clip", "keep"}:
            fix = "use nonfinite='raise', 'clip' or 'keep'"
            message = f"{nonfinite!r} is no rule for NaN; {fix}"
            raise SchemeError(message, field="nonfinite", value=nonfinite, fix=fix)

    def update(self, chunk: ArrayLike) -> Self:
        """Take one more chunk into account.

        Parameters
        ----------
        chunk : array_like
            float16, bfloat16, float32, float64 or integers up to 2**53; it may be empty.

        Returns
        -------
        Observer
            This one.

        Raises
        ------
        SchemeError
            If the scheme's block does not fit the chunk, or an earlier chunk had another shape.
        QuantizedTypeError
            If the chunk's dtype cannot be quantized.
        DataError
            If values are NaN or infinite and ``nonfinite="raise"``. The chunk then did not count.
        """
        array = as_array(chunk)
        scheme = self.scheme or _WHOLE
        require(scheme, array.shape, array.dtype.name)
        self._require_shape(array.shape)
        native = as_native(array)
        layout = plan(scheme, native.shape)
        numbers = native.astype(np.result_type(native.dtype, np.float32), copy=False)
        finite = np.isfinite(numbers)
        if not finite.all():
            if self.nonfinite == "raise":
                raise nonfinite_error(native, block_finder(layout))
            numbers = np.where(finite, numbers, numbers.dtype.type(0))
        self._add(self._summarize(numbers, finite, layout), 1, array.shape, numbers.dtype)
        return self

    def merge(self, other: Observer) -> Self:
        """Take all chunks of another observer into account, as if they had come after this one's.

        Parameters
        ----------
        other : Observer
            Of the same class, settings and block; it is not changed.

        Returns
        -------
        Observer
            This one.

        Raises
        ------
        QuantizedTypeError
            If it is not an observer of this class.
        SchemeError
            If it has other settings, another block, or saw chunks of another shape.
        """
        if type(other) is not type(self):
            message = f"a {type(self).__name__} merges with its like, not {type(other).__name__}"
            raise QuantizedTypeError(message)
        for name in ("block", *self.settings):
            mine, others = self._setting(name), other._setting(name)
            if mine != others:
                fix = "merge observers that were made alike"
                message = f"{name} is {mine!r} here and {others!r} there; {fix}"
                raise SchemeError(message, field=name, value=others, fix=fix)
        if other._summary is not None:
            if other._shape is not None:
                self._require_shape(other._shape)
            self._add(other._summary, other.chunks, other._shape, other._dtype)
        return self

    def params(
        self, scheme: Scheme | str | None = None, *, scale_rounding: ScaleRounding = "up"
    ) -> QParams:
        """Return the parameters for all chunks seen so far.

        Parameters
        ----------
        scheme : Scheme or str, optional
            Default: the scheme this observer was made for. Another one must have the same block.
        scale_rounding : str
            How a scale is stored; see ``calibrate``.

        Returns
        -------
        QParams
            As ``calibrate`` returns: scales shaped like the block grid of a chunk.

        Raises
        ------
        DataError
            If no chunk was seen.
        SchemeError
            If the scheme has another block, or this observer cannot calibrate it.
        """
        known = self._params_scheme(scheme)
        require_options(known, Options("even", scale_rounding, self.nonfinite, self.method))
        if self._summary is None:
            fix = "call update() with at least one chunk"
            raise DataError(f"this {type(self).__name__} observer has seen no data; {fix}")
        return self._params(self._summary, known, scale_rounding)

    def state_dict(self) -> dict[str, Any]:
        """Return all of the state as numbers, text and NumPy arrays, by name."""
        return {
            "observer": type(self).__name__,
            "scheme": None if self.scheme is None else str(self.scheme),
            "nonfinite": self.nonfinite,
            **{name: getattr(self, name) for name in self.settings},
            "chunks": self.chunks,
            "shape": self._shape,
            "dtype": self._dtype.name,
            "summary": None if self._summary is None else dict(self._summary),
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Observer:
        """Return the observer that ``state_dict`` described.

        Parameters
        ----------
        state : dict
            As ``state_dict`` returned it; also after JSON made lists of its arrays and tuples.

        Returns
        -------
        Observer
            Of the class the state names.

        Raises
        ------
        DecodeError
            If it is not such a state.
        """
        kinds: dict[str, Any] = {kind.__name__: kind for kind in _subclasses(Observer)}
        try:
            kind = kinds[state["observer"]]
            settings = {name: state[name] for name in ("scheme", "nonfinite", *kind.settings)}
            observer: Observer = kind(**settings)
            observer._restore(state)
        except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
            raise DecodeError(f"this is no state of an observer: {error!r}") from error
        return observer

    def __repr__(self) -> str:
        """Return the class, the scheme and how much it has seen."""
        scheme = "" if self.scheme is None else repr(str(self.scheme))
        return f"<{type(self).__name__}({scheme}), {self.chunks} chunks seen>"

    # --- what a subclass says

    @abstractmethod
    def _summarize(self, numbers: NDArray[Any], finite: NDArray[np.bool_], layout: Plan) -> Summary:
        """Return the summary of one chunk: float32 or float64, 0 where it is not finite."""

    @abstractmethod
    def _join(self, first: Summary, second: Summary) -> Summary:
        """Return the summary of two summaries, of which neither is changed."""

    @abstractmethod
    def _range(self, summary: Summary, scheme: Scheme) -> Range:
        """Return the range of every block, shaped like the grid."""

    def _params(self, summary: Summary, scheme: Scheme, rule: ScaleRounding) -> QParams:
        """Return the parameters of a summary."""
        lo, hi = (end.astype(self._dtype) for end in self._range(summary, scheme))
        return range_params(lo, hi, scheme, rule)

    # --- what they share

    def _setting(self, name: str) -> object:
        if name == "block":
            return None if self.scheme is None else self.scheme.block
        return getattr(self, name)

    def _add(
        self, summary: Summary, chunks: int, shape: tuple[int, ...] | None, dtype: np.dtype[Any]
    ) -> None:
        known = self._summary
        self._summary = summary if known is None else self._join(known, summary)
        self._dtype = np.result_type(self._dtype, dtype)
        self._shape = shape if self._setting("block") is not None else None
        self.chunks += chunks

    def _require_shape(self, shape: tuple[int, ...]) -> None:
        if self._setting("block") is not None and self._shape not in {None, shape}:
            fix = "give chunks of one shape, or observe with a scheme without a block"
            message = f"this chunk has shape {shape}, those before had {self._shape}; {fix}"
            raise SchemeError(message, field="shape", value=shape, fix=fix)

    def _restore(self, state: dict[str, Any]) -> None:
        """Take over a state's chunks; refuse a summary of other names or shapes."""
        if state["summary"] is None:
            return
        scheme = self.scheme or _WHOLE
        shape = None if state["shape"] is None else as_shape(state["shape"])
        sizes = (shape or ()) if scheme.block is not None else ()
        dtype = np.dtype(state["dtype"])
        empty = np.zeros([0] * len(sizes) or [0], dtype)
        nothing = self._summarize(empty, empty == 0, plan(scheme, empty.shape))
        grid = plan(scheme, sizes).grid
        summary = {}
        for name, part in nothing.items():
            found = np.asarray(state["summary"][name], np.asarray(part).dtype)
            if name not in self.free and found.shape != grid:
                raise ValueError(f"{name} has shape {found.shape}, not {grid}")
            summary[name] = found
        self._add(summary, int(state["chunks"]), shape, dtype)

    def _params_scheme(self, scheme: Scheme | str | None) -> Scheme:
        known = self.scheme if scheme is None else as_scheme(scheme)
        if known is None:
            fix = "name one: params(scheme)"
            message = f"this observer was made without a scheme; {fix}"
            raise SchemeError(message, field="scheme", fix=fix)
        if known.block != self._setting("block"):
            fix = f"make the observer for it: {type(self).__name__}({str(known)!r})"
            message = f"it kept ranges for block={self._setting('block')}, not {known.block}; {fix}"
            raise SchemeError(message, field="block", value=known.block, fix=fix)
        return known


def require_number(field: str, given: Any, fits: Callable[[Any], bool], fix: str) -> None:
    """Refuse a setting that is no real number, or not one that fits."""
    if isinstance(given, bool) or not isinstance(given, Real) or not fits(given):
        message = f"{field} is {cut(repr(given))}; {fix}"
        raise SchemeError(message, field=field, value=given, fix=fix)


def range_params(
    lo: NDArray[Any], hi: NDArray[Any], scheme: Scheme, rule: ScaleRounding
) -> QParams:
    """Return the parameters of blocks of which the ends of the range are known.

    They are those of an array in which every block consists of its two ends, which is what
    ``calibrate`` looks at: the same code gives the same bits.
    """
    ends = np.stack([lo, hi], axis=-1)
    block = None if scheme.block is None else 2
    found = calibrate(ends, scheme.replace(block=block, pack_axis=0), scale_rounding=rule)
    points = None if found.zero_points is None else found.zero_points.reshape(lo.shape)
    return QParams(found.scales.reshape(lo.shape), found.global_scale, points)


def reduce_blocks(numbers: NDArray[Any], ufunc: np.ufunc, layout: Plan) -> NDArray[Any]:
    """Return ufunc over every block, and over the number 0 for minimum and maximum."""
    if not numbers.size:
        return np.zeros(layout.grid, numbers.dtype)
    if not layout.grid:
        return np.asarray(ufunc.reduce(numbers, axis=None))
    for axis, (extent, step) in enumerate(zip(layout.shape, layout.block, strict=True)):
        numbers = ufunc.reduceat(numbers, np.arange(0, extent, step), axis=axis)
    return numbers


def block_index(layout: Plan) -> NDArray[np.int64]:
    """Return the flat index of every element's block."""
    if not layout.grid:
        return np.broadcast_to(np.int64(0), layout.shape)
    index = np.zeros(layout.shape, np.int64)
    for axis, (step, blocks) in enumerate(zip(layout.block, layout.grid, strict=True)):
        places = np.arange(layout.shape[axis]) // step
        index = index * blocks + np.expand_dims(places, tuple(range(1, index.ndim - axis)))
    return index


def _subclasses(kind: Any) -> list[Any]:
    found: list[Any] = kind.__subclasses__()
    return found + [more for sub in found for more in _subclasses(sub)]
