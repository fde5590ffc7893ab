"""The moves as methods of a quantized array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.errors import SchemeError
from qnumba.moves import convert
from qnumba.moves.axes import Axes
from qnumba.moves.gather import gathered
from qnumba.moves.held import parts_of
from qnumba.moves.index import axes_named, axis_named, read_index, read_positions
from qnumba.moves.select import select
from qnumba.moves.shapes import reshaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Self

    from qnumba.moves.held import Parts
    from qnumba.scheme import Scheme


class Moves(Axes):
    """Moves of codes and scales: every result decodes to the moved numbers, bit for bit."""

    # --- positions along axes

    def __getitem__(self, key: Any) -> Self:
        """Return the part that integers, slices, ``None`` and ``...`` name; see ``slice``."""
        return self.slice(key)

    def __iter__(self) -> Iterator[Self]:
        """Yield the parts along the first axis."""
        if not self.shape:
            message = "an array without axes has no parts to go through"
            raise TypeError(message)
        return (self.slice(position) for position in range(self.shape[0]))

    def slice(self, key: Any, *, requantize: bool = False) -> Self:
        """Return the part of the array that a basic index names: ``q[key]``, with an option.

        An axis that an integer is given for goes, and its block extent with it. A slice without
        step keeps the block extent: it must start at a block's edge, or stay within one block. A
        slice with a step takes equally many positions from every block, and that is the new
        extent.

        Parameters
        ----------
        key : int, slice, None, Ellipsis or tuple of these
            As between brackets; ``numpy.s_[...]`` writes it.
        requantize : bool
            Where a block would be split: decode, take the part, quantize it with the same scheme.

        Returns
        -------
        QArray

        Raises
        ------
        InexactMoveError
            If a block would be split.
        IndexError
            If the key is outside the array.
        """
        picks, places = read_index(key, self.shape)
        return self._moved(
            lambda: select(parts_of(self), picks, places, "the slice"),
            lambda numbers: numbers[key],
            requantize=requantize,
        )

    def flip(self, axis: int | Sequence[int] | None = None, *, requantize: bool = False) -> Self:
        """Return the array with the order along some axes turned round.

        Parameters
        ----------
        axis : int, sequence of int or None
            The axes; None for all.
        requantize : bool
            Where the last block of an axis is partial: decode, flip, quantize.

        Returns
        -------
        QArray

        Raises
        ------
        InexactMoveError
            If the last block of such an axis is partial, so that the result would start with it.
        """
        turned = axes_named(axis, len(self.shape))
        picks = [
            range(extent)[::-1] if number in turned else range(extent)
            for number, extent in enumerate(self.shape)
        ]
        return self._moved(
            lambda: select(parts_of(self), picks, range(len(picks)), "flip"),
            lambda numbers: np.flip(numbers, turned),
            requantize=requantize,
        )

    def take(self, indices: Any, axis: int | None = None, *, requantize: bool = False) -> Self:
        """Return the elements at given positions along an axis, as ``numpy.take`` does.

        Parameters
        ----------
        indices : array_like of int
            Positions, in any order and number; negative ones count from the end. An array of
            several axes puts these in the place of the one.
        axis : int or None
            The axis; None takes from the flattened array.
        requantize : bool
            Where blocks give unequal numbers of elements: decode, take, quantize.

        Returns
        -------
        QArray
            The block extent along the axis stays where whole blocks are taken; where equally many
            elements are taken from every block, it becomes their number.

        Raises
        ------
        InexactMoveError
            If neither is so.
        IndexError
            If a position is outside the axis.
        """
        shape = (self.size,) if axis is None else self.shape
        along = axis_named(0 if axis is None else axis, len(shape))
        positions = read_positions(indices, shape[along], along)
        inner = positions.shape
        picks: list[Any] = [range(extent) for extent in shape]
        picks[along] = positions.reshape(-1)
        places = [number for number in range(len(picks)) if number != along or inner]

        def exact() -> Parts:
            source = parts_of(self) if axis is not None else reshaped(parts_of(self), shape)
            taken = select(source, picks, places, "take")
            if len(inner) < 2:  # noqa: PLR2004 - one axis came in the place of one
                return taken
            return reshaped(taken, (*shape[:along], *inner, *shape[along + 1 :]))

        return self._moved(
            exact, lambda numbers: np.take(numbers, positions, axis), requantize=requantize
        )

    def take_along_axis(self, indices: Any, axis: int = -1, *, requantize: bool = False) -> Self:
        """Return elements at positions of their own in every line, as ``numpy.take_along_axis``.

        Parameters
        ----------
        indices : array_like of int
            Of this array's rank, and of its extents (or 1) along the other axes.
        axis : int
            The axis the positions count along.
        requantize : bool
            Where blocks do not stay together: decode, take, quantize.

        Returns
        -------
        QArray

        Raises
        ------
        InexactMoveError
            If lines that share blocks take from different ones, or if blocks along ``axis`` give
            unequal numbers of elements.
        SchemeError
            If the shape of ``indices`` does not fit.
        IndexError
            If a position is outside the axis.
        """
        along = axis_named(axis, len(self.shape))
        positions = read_positions(indices, self.shape[along], along)
        source = self._widened(positions.shape, along)
        return self._moved(
            lambda: gathered(parts_of(source), positions, along),
            lambda numbers: np.take_along_axis(numbers, positions, along),
            requantize=requantize,
        )

    # --- other schemes

    def requantize(self, scheme: Scheme | str, **options: Any) -> Self:
        """Decode, and quantize the numbers with another scheme.

        Parameters
        ----------
        scheme : Scheme or str
            The new scheme, its text, or a preset.
        **options
            ``rounding``, ``scale_rounding``, ``nonfinite`` and ``method``, as ``quantize`` takes
            them.

        Returns
        -------
        QArray
            ``source_dtype`` stays that of the first array.

        Raises
        ------
        SchemeError
            If the scheme does not fit the shape or the options.
        """
        return convert.requantized(self, scheme, options)

    def astype_scheme(self, scheme: Scheme | str | None = None, **changes: Any) -> Self:
        """Return the same numbers under another scheme: every decoded bit stays.

        Store and packed axis always change freely. The value type, the table, the block, the
        scale dtypes and the level change where the new scheme can hold every number there is.

        Parameters
        ----------
        scheme : Scheme or str, optional
            The new scheme. Default: this array's, with ``changes``.
        **changes
            Arguments of ``Scheme`` to change, such as ``store="native"`` or ``pack_axis=1``.

        Returns
        -------
        QArray

        Raises
        ------
        InexactMoveError
            If a number would change. It names one; ``requantize`` accepts the change.
        SchemeError
            If the scheme is none, or does not fit the shape.
        """
        return convert.converted(self, convert.changed(self.scheme, scheme, changes))

    def _widened(self, shape: tuple[int, ...], axis: int) -> Self:
        """Return the array broadcast to what indices of some shape count along."""
        inner = (*shape[:axis], 1, *shape[axis + 1 :])
        try:
            wide = np.broadcast_shapes(inner, self.shape) if len(shape) == len(self.shape) else ()
        except ValueError:
            wide = ()
        if not wide:
            fix = f"give {len(self.shape)} axes, equal to this array's but for axis {axis}, or 1"
            message = f"indices of shape {shape} do not fit an array of shape {self.shape}; {fix}"
            raise SchemeError(message, field="indices", value=shape, fix=fix)
        return self if wide == self.shape else self.broadcast_to(wide)
