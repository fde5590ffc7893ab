"""Choosing positions along every axis: slices, flips, take, new axes and axes that go.

Words move as they are wherever the lines along the packed axis stay whole; elsewhere the part of
the words that is needed is unpacked, moved and packed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.layout import plan
from qnumba.moves.blocks import (
    Axis,
    axes_of,
    inexact,
    map_params,
    runs_of_indices,
    runs_of_range,
    with_blocks,
)
from qnumba.moves.held import Parts, rebuilt
from qnumba.moves.words import pack, packed_axis, per_word, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from qnumba.params import Params
    from qnumba.scheme import Scheme


def select(parts: Parts, picks: Sequence[Any], places: Sequence[int | None], move: str) -> Parts:
    """Return the elements at some positions along every axis.

    Parameters
    ----------
    parts : Parts
        The array.
    picks : sequence of range or of numpy.ndarray
        For every axis the positions to take, all of them legal and at least 0.
    places : sequence of int or None
        For every axis of the result, the axis it was; None for a new one. An axis that is not
        named goes, and one position is picked from it.
    move : str
        What is done, for messages.
    """
    shape = tuple(1 if axis is None else len(picks[axis]) for axis in places)
    source = packed_axis(parts)
    kept = source is not None and source in places
    pack_axis = len(places) - 1 - places.index(source) if kept else 0
    extents, params = _select_params(parts, picks, move)
    declared = None if extents is None else [1 if a is None else extents[a] for a in places]
    scheme = with_blocks(parts.scheme, declared, shape, pack_axis)
    grid = plan(scheme, shape).grid
    words = _select_words(parts, picks, scheme, shape, kept=kept)
    params = map_params(params, lambda array: array.reshape(grid))
    return rebuilt(scheme, shape, words, params)


def _select_params(
    parts: Parts, picks: Sequence[Any], move: str
) -> tuple[list[int] | None, Params]:
    """Return the block extent along every axis, and the parameters of the blocks picked."""
    params = parts.params
    if parts.scheme.block is None:
        return None, params
    empty = not all(len(pick) for pick in picks)
    extents, blocks = [], []
    for number, (axis, pick) in enumerate(zip(axes_of(parts.plan), picks, strict=True)):
        is_range = isinstance(pick, range)
        runs = runs_of_range(pick, axis.block) if is_range else runs_of_indices(pick, axis.block)
        extent = axis.declared if empty else runs.extent(axis)
        if extent is None:
            raise _cut_error(move, number, axis, pick)
        extents.append(extent)
        blocks.append(runs.at(extent))
    return extents, map_params(params, lambda array: choose(array, blocks))


def choose(array: NDArray[Any], picks: Sequence[Any]) -> NDArray[Any]:
    """Return an array's elements at positions along every axis, ranges without a copy."""
    parts: list[Any] = [*map(_as_slice, picks), ...]
    array = array[tuple(parts)]
    for axis, pick in enumerate(picks):
        if not isinstance(pick, range):
            array = np.take(array, pick, axis)
    return array


def _as_slice(pick: Any) -> slice:
    """Return the slice of a range of positions; an array is left for later."""
    if not isinstance(pick, range):
        return slice(None)
    if not pick:
        return slice(0, 0)
    stop = pick[-1] + (1 if pick.step > 0 else -1)
    return slice(pick[0], None if stop < 0 else stop, pick.step)


def _select_words(
    parts: Parts, picks: Sequence[Any], scheme: Scheme, shape: tuple[int, ...], *, kept: bool
) -> NDArray[Any]:
    """Return the words of the elements picked."""
    axis = packed_axis(parts)
    if axis is None:
        return choose(parts.words, picks) if parts.shape else parts.words
    pick, extent, per = picks[axis], parts.shape[axis], per_word(parts.scheme)
    picks = list(picks)
    if kept and _keeps_lines(pick, extent, per):
        picks[axis] = range(pick.start // per, -(-pick.stop // per))
        return choose(parts.words, picks)
    first, last = _ends(pick)
    window = range(first // per, last // per + 1)
    picks[axis] = window
    part_shape = [len(each) for each in picks]
    start = window.start * per
    part_shape[axis] = min(window.stop * per, extent) - start if len(pick) else 0
    codes = unpack(choose(parts.words, picks), parts.scheme, tuple(part_shape))
    picks = [range(size) for size in part_shape]
    picks[axis] = _shifted(pick, start)
    return pack(choose(codes, picks), scheme, shape)


def _keeps_lines(pick: Any, extent: int, per: int) -> bool:
    """Return whether positions along the packed axis are whole words, in order."""
    if not isinstance(pick, range) or pick.step != 1:
        return False
    return pick.start % per == 0 and (pick.stop % per == 0 or pick.stop == extent)


def _ends(pick: Any) -> tuple[int, int]:
    """Return the first and the last position, wherever in the order they come."""
    if not len(pick):
        return 0, -1
    if isinstance(pick, range):
        return min(pick[0], pick[-1]), max(pick[0], pick[-1])
    return int(pick.min()), int(pick.max())


def _shifted(pick: Any, start: int) -> Any:
    if isinstance(pick, range):
        return range(pick.start - start, pick.stop - start, pick.step)
    return pick - start


def _cut_error(move: str, number: int, axis: Axis, pick: Any) -> Exception:
    """Return the error of positions that split blocks along an axis, with what would do."""
    block, extent = axis.block, axis.extent
    problem = f"{move} would split blocks of {block} along axis {number} of extent {extent}"
    step = pick.step if isinstance(pick, range) else 0
    if abs(step) == 1:
        edges = [edge for edge in range(0, extent + 1, block) if abs(edge - pick.start) <= block]
        where = "start at" if step == 1 else "start just before"
        alignment = f"{where} a multiple of {block}, such as {' or '.join(map(str, edges[:2]))}"
        if step == -1 and pick.start == extent - 1:
            problem += f", whose last block holds {extent % block}"
    elif step:
        alignment = f"take a step that divides {block} or is a multiple of it, from a block's edge"
    else:
        alignment = "take whole blocks, or equally many positions from every block"
    return inexact(problem, alignment, field="axis", value=number)
