"""Moves that reorder, regroup, add or drop axes, as methods of a quantized array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from qnumba.errors import SchemeError
from qnumba.fields import is_several
from qnumba.moves.blocks import InexactMoveError
from qnumba.moves.encode import encode_again
from qnumba.moves.held import Held, like, parts_of
from qnumba.moves.index import axes_named, axis_named
from qnumba.moves.select import select
from qnumba.moves.shapes import reshaped, transposed
from qnumba.validate import as_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from qnumba.moves.held import Parts


class Axes(Held):
    """Moves of whole axes."""

    def reshape(self, *shape: Any, requantize: bool = False) -> Self:
        """Return the array with other axes, its elements in the same (row-major) order.

        Parameters
        ----------
        *shape : int or sequence of int
            The new extents; one may be -1.
        requantize : bool
            Where a new axis would cut a block: decode, reshape, quantize with the same scheme.

        Returns
        -------
        QArray
            The scheme stays where it describes the same blocks; else the block's extents follow
            the axes.

        Raises
        ------
        InexactMoveError
            If a new axis would cut a block.
        SchemeError
            If the sizes differ.
        """
        sizes = shape[0] if len(shape) == 1 and is_several(shape[0]) else shape
        return self._moved(
            lambda: reshaped(parts_of(self), sizes),
            lambda numbers: numbers.reshape(sizes),
            requantize=requantize,
        )

    def transpose(self, *axes: Any) -> Self:
        """Return the array with its axes in another order; blocks and packed axis go along.

        Parameters
        ----------
        *axes : int or sequence of int
            Axis i of the result is axis ``axes[i]``. None given: the reverse order.

        Returns
        -------
        QArray

        Raises
        ------
        SchemeError
            If ``axes`` is no permutation, or the block would have more than 5 extents.
        """
        rank = len(self.shape)
        if len(axes) == 1 and (axes[0] is None or is_several(axes[0])):
            axes = () if axes[0] is None else tuple(axes[0])
        order = axes_named(axes, rank) if axes else tuple(range(rank))[::-1]
        if len(order) != rank:
            fix = "name each axis once"
            message = f"{axes} is not a permutation of {rank} axes; {fix}"
            raise SchemeError(message, field="axes", value=axes, fix=fix)
        return like(self, transposed(parts_of(self), order))

    permute = transpose

    @property
    def T(self) -> Self:  # noqa: N802 - NumPy's
        """The array with its axes in reverse order."""
        return self.transpose()

    def swapaxes(self, first: int, second: int) -> Self:
        """Return the array with two axes exchanged.

        Parameters
        ----------
        first, second : int
            The axes.

        Returns
        -------
        QArray
        """
        order = list(range(len(self.shape)))
        a, b = axis_named(first, len(order)), axis_named(second, len(order))
        order[a], order[b] = b, a
        return like(self, transposed(parts_of(self), order))

    def expand_dims(self, axis: int | Sequence[int]) -> Self:
        """Return the array with new axes of extent 1.

        Parameters
        ----------
        axis : int or sequence of int
            Where they stand in the result.

        Returns
        -------
        QArray
        """
        count = len(axis) if is_several(axis) else 1  # type: ignore[arg-type]
        rank = len(self.shape) + count
        new = axes_named(axis, rank)
        old = iter(range(len(self.shape)))
        places = [None if number in new else next(old) for number in range(rank)]
        return self._selected([range(extent) for extent in self.shape], places, "expand_dims")

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Self:
        """Return the array without axes of extent 1.

        Parameters
        ----------
        axis : int, sequence of int or None
            The axes to drop; None for all of extent 1.

        Returns
        -------
        QArray

        Raises
        ------
        SchemeError
            If such an axis is longer.
        """
        single = {number for number, extent in enumerate(self.shape) if extent == 1}
        gone = single if axis is None else set(axes_named(axis, len(self.shape)))
        if not gone <= single:
            fix = f"name axes of extent 1 of the shape {self.shape}"
            message = f"the axes {sorted(gone - single)} are longer than 1; {fix}"
            raise SchemeError(message, field="axis", value=axis, fix=fix)
        places = [number for number in range(len(self.shape)) if number not in gone]
        return self._selected([range(extent) for extent in self.shape], places, "squeeze")

    def broadcast_to(self, shape: int | Sequence[int]) -> Self:
        """Return the array repeated along new axes and along axes of extent 1.

        The copies are written out: nothing is shared with this array.

        Parameters
        ----------
        shape : int or sequence of int
            The shape of the result.

        Returns
        -------
        QArray

        Raises
        ------
        SchemeError
            If the shapes do not broadcast.
        """
        wanted = as_shape(cast("Sequence[int]", shape if is_several(shape) else (shape,)))
        new = len(wanted) - len(self.shape)
        pairs = list(zip((1,) * new + self.shape, wanted, strict=False))
        if new < 0 or any(extent not in {1, target} for extent, target in pairs):
            fix = "repeat new leading axes, and axes of extent 1"
            message = f"shape {self.shape} does not broadcast to {wanted}; {fix}"
            raise SchemeError(message, field="shape", value=wanted, fix=fix)
        parts = parts_of(self.expand_dims(tuple(range(new))))
        picks = [
            range(target) if extent == target else np.zeros(target, np.int64)
            for extent, target in zip(parts.shape, wanted, strict=True)
        ]
        return like(self, select(parts, picks, range(len(picks)), "broadcast_to"))

    def _selected(self, picks: Sequence[Any], places: Sequence[int | None], move: str) -> Self:
        """Return the elements at some positions along every axis."""
        return like(self, select(parts_of(self), picks, places, move))

    def _moved(
        self,
        exact: Callable[[], Parts],
        same: Callable[[NDArray[Any]], NDArray[Any]],
        *,
        requantize: bool,
    ) -> Self:
        """Return an exact move, or where there is none, the moved numbers quantized again."""
        try:
            return like(self, exact())
        except InexactMoveError:
            if not requantize:
                raise
        return encode_again(self, same(self.dequantize()))
