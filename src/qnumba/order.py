"""Comparisons: largest, smallest, sorted. What is compared is the decoded numbers.

An array is read in pieces of bounded size. With one scale for the whole array and integer codes the
codes are in the order of the numbers, so they are compared and only the answer is decoded.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.errors import SchemeError, cut
from qnumba.fields import whole_number
from qnumba.formats import SCALES
from qnumba.moves import Moves
from qnumba.moves.held import parts_of
from qnumba.moves.index import axis_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

PIECE = 1 << 22  # elements decoded at a time
_LAST = -(2**40)  # below the rank of any number


class Order(Moves):
    """Comparisons over the numbers an array stands for, NaN treated as NumPy does."""

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return where the largest numbers are: the first of them, or the first NaN.

        Parameters
        ----------
        axis : int or None
            The axis to search along; None searches the flattened array.
        keepdims : bool
            Keep the axis, with extent 1.

        Returns
        -------
        numpy.ndarray or numpy.int64
            int64 positions along the axis.

        Raises
        ------
        SchemeError
            If there is nothing to compare.
        """
        return _extreme(self, np.argmax, axis, keepdims=keepdims)[0]

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return where the smallest numbers are: the first of them, or the first NaN.

        Parameters
        ----------
        axis, keepdims
            As for ``argmax``.

        Returns
        -------
        numpy.ndarray or numpy.int64

        Raises
        ------
        SchemeError
            If there is nothing to compare.
        """
        return _extreme(self, np.argmin, axis, keepdims=keepdims)[0]

    def max(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return the largest numbers, decoded; NaN where there is one.

        Parameters
        ----------
        axis, keepdims
            As for ``argmax``.

        Returns
        -------
        numpy.ndarray or numpy.float32

        Raises
        ------
        SchemeError
            If there is nothing to compare.
        """
        return _extreme(self, np.argmax, axis, keepdims=keepdims)[1]

    def min(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return the smallest numbers, decoded; NaN where there is one.

        Parameters
        ----------
        axis, keepdims
            As for ``argmax``.

        Returns
        -------
        numpy.ndarray or numpy.float32

        Raises
        ------
        SchemeError
            If there is nothing to compare.
        """
        return _extreme(self, np.argmin, axis, keepdims=keepdims)[1]

    def topk(
        self, k: int, axis: int | None = -1, *, largest: bool = True
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the k largest numbers along an axis, largest first, and where they are.

        Equal numbers come in the order of their positions. NaN counts as larger than everything.

        Parameters
        ----------
        k : int
            How many, at most the extent of the axis.
        axis : int or None
            The axis; None takes from the flattened array.
        largest : bool
            False: the smallest, smallest first.

        Returns
        -------
        values : numpy.ndarray
            float32, decoded.
        indices : numpy.ndarray
            int64 positions along the axis.

        Raises
        ------
        SchemeError
            If k is not between 0 and the extent of the axis.
        """
        flat = axis is None
        shape = (self.size,) if flat else self.shape
        along = axis_named(0 if axis is None else axis, len(shape))
        count = whole_number(k)
        if count is None or not 0 <= count <= shape[along]:
            fix = f"give a number from 0 to {shape[along]}, the extent of the axis"
            raise SchemeError(f"k is {cut(repr(k))}; {fix}", field="k", value=k, fix=fix)
        return _topk(self, count, along, flat=flat, largest=largest)

    def sort(self, axis: int | None = -1) -> NDArray[np.float32]:
        """Return the numbers in ascending order, decoded; NaN comes last.

        Parameters
        ----------
        axis : int or None
            The axis to sort along; None sorts the flattened array.

        Returns
        -------
        numpy.ndarray
            float32.
        """
        along = None if axis is None else axis_named(axis, len(self.shape))
        reader = _reader(self)
        return reader.decode(np.sort(reader.read(self), along, kind="stable"))

    def argsort(self, axis: int | None = -1) -> NDArray[np.int64]:
        """Return the positions that sort the numbers; equal numbers keep their order.

        Parameters
        ----------
        axis : int or None
            The axis to sort along; None sorts the flattened array.

        Returns
        -------
        numpy.ndarray
            int64. ``q.take_along_axis(q.argsort(axis), axis)`` is the sorted array, quantized.
        """
        along = None if axis is None else axis_named(axis, len(self.shape))
        return np.argsort(_reader(self).read(self), along, kind="stable")


class Reader(NamedTuple):
    """How to get what is compared out of a part of an array, and numbers out of that."""

    dtype: np.dtype[Any]
    read: Callable[[Any], NDArray[Any]]
    decode: Callable[[NDArray[Any]], NDArray[np.float32]]


class Piece(NamedTuple):
    """A part of an array, seen as lines along the axis that is searched, which comes last."""

    lines: NDArray[Any]
    place: tuple[slice, ...]
    start: int


def _reader(q: Order) -> Reader:
    """Return the reader of codes where their order is that of the numbers, else of numbers."""
    parts = parts_of(q)
    scales, _, points = parts.params
    if q.scheme.block is None and q.scheme.mode != "lookup" and parts.plan.value.kind != "float":
        point = np.float32(0 if points is None else points)
        scale = np.float32(scales)
        span = 2.0**parts.plan.value.bits  # no code is further from the zero point
        if 0 < float(scale) * span <= SCALES["F32"].max:
            dtype = parts.plan.code_dtype
            return Reader(dtype, lambda part: part.codes(), lambda codes: (codes - point) * scale)
    return Reader(np.dtype(np.float32), lambda part: part.dequantize(), lambda numbers: numbers)


def _pieces(q: Order, reader: Reader, axis: int, *, flat: bool) -> Iterator[Piece]:
    """Yield an array in parts of bounded size, in row-major order."""
    shape = q.shape
    strides = [math.prod(shape[number + 1 :]) for number in range(len(shape))]
    for box in _boxes(shape, parts_of(q).plan.block):
        keys = reader.read(q if q.size <= PIECE else q[box])
        if flat:
            first = sum(span.start * stride for span, stride in zip(box, strides, strict=True))
            yield Piece(keys.reshape(-1), (), first)
        else:
            place = box[:axis] + box[axis + 1 :]
            yield Piece(np.moveaxis(keys, axis, -1), place, box[axis].start)


def _boxes(shape: tuple[int, ...], block: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield boxes of at most PIECE elements that cut no block, unless they stay within it."""
    if math.prod(shape) <= PIECE:
        yield tuple(slice(0, extent) for extent in shape)
        return
    inner = [math.prod(shape[number + 1 :]) for number in range(len(shape))]
    axis = next(number for number, size in enumerate(inner) if size <= PIECE)
    spans = [[slice(i, i + 1) for i in range(extent)] for extent in shape[:axis]]
    spans.append(_spans(shape[axis], block[axis], PIECE // inner[axis]))
    spans += [[slice(0, extent)] for extent in shape[axis + 1 :]]
    yield from itertools.product(*spans)


def _spans(extent: int, block: int, most: int) -> list[slice]:
    """Return the parts of an axis: whole blocks, or pieces of one."""
    if block <= most:
        edges = [*range(0, extent, most - most % block), extent]
    else:
        edges = [
            edge
            for start in range(0, extent, block)
            for edge in range(start, min(start + block, extent), most)
        ]
        edges.append(extent)
    return [slice(*pair) for pair in itertools.pairwise(edges)]


def _extreme(
    q: Order, find: Callable[..., Any], axis: int | None, *, keepdims: bool
) -> tuple[Any, Any]:
    """Return where the extreme numbers are, and what they are."""
    rank = len(q.shape)
    along = 0 if axis is None else axis_named(axis, rank)
    others = () if axis is None else q.shape[:along] + q.shape[along + 1 :]
    if (q.size if axis is None else q.shape[along]) == 0:
        fix = "give an array with elements along the axis"
        message = f"an array of shape {q.shape} has no largest or smallest number; {fix}"
        raise SchemeError(message, field="axis", value=axis, fix=fix)
    reader = _reader(q)
    positions = np.zeros(others, np.int64)
    best = np.zeros(others, reader.dtype)
    for lines, place, start in _pieces(q, reader, along, flat=axis is None):
        where = np.expand_dims(find(lines, axis=-1), -1)
        found = np.take_along_axis(lines, where, -1)[..., 0]
        wins = np.ones(found.shape, bool) if start == 0 else _beats(found, best[place], find)
        best[place] = np.where(wins, found, best[place])
        positions[place] = np.where(wins, where[..., 0] + start, positions[place])
    numbers = reader.decode(best)
    if keepdims:
        shape = (1,) * rank if axis is None else (*others[:along], 1, *others[along:])
        positions, numbers = positions.reshape(shape), numbers.reshape(shape)
    return positions[()], numbers[()]


def _beats(found: Any, best: Any, find: Callable[..., Any]) -> NDArray[np.bool_]:
    """Return where a later number is more extreme than an earlier one, NaN most of all."""
    more = np.greater if find is np.argmax else np.less
    wins = more(found, best)
    if found.dtype.kind == "f":
        wins = (wins | np.isnan(found)) & ~np.isnan(best)
    return np.asarray(wins)


def _topk(
    q: Order, k: int, axis: int, *, flat: bool, largest: bool
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the k most extreme numbers and their positions, the best of every piece merged."""
    others = () if flat else q.shape[:axis] + q.shape[axis + 1 :]
    reader = _reader(q)
    ranks: NDArray[Any] = np.full((*others, k), _LAST, np.int64)
    positions: NDArray[Any] = np.zeros((*others, k), np.int64)
    values: NDArray[Any] = np.zeros((*others, k), np.float32)
    for lines, place, start in _pieces(q, reader, axis, flat=flat):
        rank, where = _best(_ranks(lines) if largest else ~_ranks(lines), k)
        found = (rank, where + start, reader.decode(np.take_along_axis(lines, where, -1)))
        best = (ranks, positions, values)
        joined = [
            np.concatenate([old[place], new], -1) for old, new in zip(best, found, strict=True)
        ]
        order = np.lexsort((joined[1], -joined[0]), axis=-1)[..., :k]
        for old, both in zip(best, joined, strict=True):
            old[place] = np.take_along_axis(both, order, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(positions, -1, axis)


def _ranks(keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return integers in the order of numbers: equal ones for 0.0 and -0.0, the largest for NaN."""
    if keys.dtype.kind != "f":
        return keys.astype(np.int64)
    bits = (keys + np.float32(0)).view(np.int32).astype(np.int64)
    ranks = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    return np.where(np.isnan(keys), 2**31, ranks)


def _best(ranks: NDArray[np.int64], k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the k largest ranks of every line and their positions, earlier ones first if equal."""
    extent = ranks.shape[-1]
    unique = ranks * extent + np.arange(extent)[::-1]  # no two are equal, the earlier is larger
    if 0 < k < extent:
        unique = np.partition(unique, extent - k, -1)[..., extent - k :]
    elif k == 0:
        unique = unique[..., :0]
    return unique // max(extent, 1), extent - 1 - unique % max(extent, 1)
