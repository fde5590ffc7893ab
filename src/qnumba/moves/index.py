"""What stands between the brackets of an array: integers, slices, None and an ellipsis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from qnumba.errors import QuantizedTypeError, SchemeError, cut
from qnumba.fields import is_several, whole_number, whole_numbers
from qnumba.inputs import as_array


def read_index(key: Any, shape: tuple[int, ...]) -> tuple[list[range], list[int | None]]:
    """Return the positions taken along every axis, and the axes of the result.

    An axis of the result is the number of the axis it was, or None for a new one. An axis that an
    integer is given for has one position and no place.

    Raises
    ------
    IndexError
        If there are too many parts, or an integer is outside its axis.
    QuantizedTypeError
        If a part is an array, a list or anything else that is no basic index.
    SchemeError
        If a slice has a step of 0.
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    given = sum(part is not None for part in parts) - len(dots)
    if given > len(shape) or len(dots) > 1:
        problem = f"{given} parts" if len(dots) <= 1 else f"{len(dots)} ellipses"
        message = f"an index of {problem} is too much for an array of shape {shape}"
        raise IndexError(message)
    at = dots[0] if dots else len(parts)
    parts[at : at + 1] = [slice(None)] * (len(shape) - given)
    picks: list[range] = []
    places: list[int | None] = []
    for part in parts:
        if part is None:
            places.append(None)
            continue
        axis = len(picks)
        if isinstance(part, slice):
            picks.append(_read_slice(part, shape[axis]))
            places.append(axis)
        else:
            position = _read_position(part, shape[axis], axis)
            picks.append(range(position, position + 1))
    return picks, places


def _read_slice(part: slice, extent: int) -> range:
    """Return the positions that a slice names."""
    try:
        return range(*part.indices(extent))
    except TypeError:
        message = f"{cut(repr(part))} is no slice of an axis; give integers"
        raise QuantizedTypeError(message) from None
    except ValueError:
        fix = "give a step of at least 1, or below 0"
        raise SchemeError(f"a slice has step 0; {fix}", field="key", value=part, fix=fix) from None


def _read_position(part: Any, extent: int, axis: int) -> int:
    """Return a position on an axis, counted from its start."""
    position = whole_number(part)
    if position is None:
        message = (
            f"an index is made of integers, slices, ... and None, not {type(part).__name__}; "
            "q.take(indices, axis) takes an array of integers, q.dequantize() all the rest"
        )
        raise QuantizedTypeError(message)
    if not -extent <= position < extent:
        message = f"index {position} is out of bounds for axis {axis} of extent {extent}"
        raise IndexError(message)
    return position % extent


def read_positions(indices: Any, extent: int, axis: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return integers that count along an axis, from its start, as int64 of the same shape.

    Raises
    ------
    IndexError
        If one is outside the axis.
    QuantizedTypeError
        If they are no integers.
    """
    array = as_array(indices)
    if array.dtype.kind not in "iu" and array.size:
        message = f"indices have dtype {array.dtype}; give integers"
        raise QuantizedTypeError(message)
    outside = (array < -extent) | (array >= extent) if array.size else np.zeros(0, bool)
    if outside.any():
        worst = array.reshape(-1)[outside.reshape(-1).argmax()]
        message = f"index {worst} is out of bounds for axis {axis} of extent {extent}"
        raise IndexError(message)
    positions = array.astype(np.int64)
    return np.where(positions < 0, positions + extent, positions)


def axes_named(axis: Any, rank: int) -> tuple[int, ...]:
    """Return the axes that an int, a tuple of ints or None (all of them) names, in order.

    Raises
    ------
    numpy.exceptions.AxisError
        If one is not an axis.
    QuantizedTypeError
        If one is no integer.
    SchemeError
        If one is named twice.
    """
    if axis is None:
        return tuple(range(rank))
    named = whole_numbers(axis if is_several(axis) else (axis,))
    if named is None:
        raise _no_axis(axis)
    found = tuple(normalize_axis_index(each, rank) for each in named)
    if len(set(found)) < len(found):
        fix = "name each once"
        message = f"the axes {named} name one axis twice; {fix}"
        raise SchemeError(message, field="axis", value=axis, fix=fix)
    return found


def axis_named(axis: Any, rank: int) -> int:
    """Return the one axis that an int names; what is wrong with it is said by ``axes_named``."""
    named = whole_number(axis)
    if named is None:
        raise _no_axis(axis)
    return normalize_axis_index(named, rank)


def _no_axis(axis: Any) -> QuantizedTypeError:
    message = f"{cut(repr(axis))} names no axis; give an integer, or a tuple where several may be"
    return QuantizedTypeError(message)
