"""Where blocks go when axes are cut, joined or regrouped. Integers only: no codes, no scales."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.errors import SchemeError, cut
from qnumba.fields import whole_numbers
from qnumba.formats import MAX_BLOCK_RANK
from qnumba.params import Params
from qnumba.scheme import expand_block
from qnumba.validate import as_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from qnumba.layout import Plan
    from qnumba.scheme import Scheme


class InexactMoveError(SchemeError):
    """A move that codes and scales cannot follow: the result is no grid of blocks."""


def inexact(problem: str, alignment: str, *, field: str, value: object) -> InexactMoveError:
    """Return the error of a move that would need new scales."""
    fix = f"{alignment}, or pass requantize=True"
    return InexactMoveError(f"{problem}; {fix}", field=field, value=value, fix=fix)


class Axis(NamedTuple):
    """An axis: its extent, the block extent the scheme names, and that clipped to the axis."""

    extent: int
    declared: int
    block: int


def axes_of(plan: Plan) -> list[Axis]:
    """Return the axes of an array whose scheme has a block."""
    declared = expand_block(plan.scheme, len(plan.shape))
    return [Axis(*axis) for axis in zip(plan.shape, declared, plan.block, strict=True)]


class Runs(NamedTuple):
    """The blocks that the positions along a new axis come from, as runs of one block each.

    ``blocks`` numbers the block of every run and ``ends`` the position behind it. ``cut`` tells
    that positions follow one another as they did before: blocks keep their extent or are cut.
    """

    blocks: NDArray[np.int64]
    ends: NDArray[np.int64]
    cut: bool

    def extent(self, axis: Axis) -> int | None:
        """Return the block extent that tells every two blocks apart, or None if there is none.

        The extent stays what it was, if that is right. A selection that takes equally many
        positions from every block it visits (from the last one maybe fewer) has that extent.
        """
        edges = self.ends[:-1]
        for extent in (axis.declared, axis.block):
            if not (edges % extent).any():
                return extent
        lengths = np.diff(self.ends, prepend=0)
        if self.cut or (lengths[:-1] != lengths[0]).any() or lengths[-1] > lengths[0]:
            return None
        return int(lengths[0])

    def at(self, extent: int) -> NDArray[np.int64]:
        """Return which old block every new block of some extent comes from."""
        starts = np.arange(0, int(self.ends[-1]) if self.ends.size else 0, extent)
        return self.blocks[np.searchsorted(self.ends, starts, side="right")]


def runs_of_range(positions: range, block: int) -> Runs:
    """Return the runs of a slice, without listing its positions where blocks are larger."""
    start, step, size = positions.start, positions.step, len(positions)
    if not size or abs(step) >= block:
        numbers = (np.arange(size) * step + start) // block
        return Runs(numbers, np.arange(1, size + 1), abs(step) == 1)
    sign = 1 if step > 0 else -1
    blocks = np.arange(start // block, positions[-1] // block + sign, sign)
    if step > 0:  # behind every block, the first position at or past the next one's start
        ends = -(-((blocks + 1) * block - start) // step)
    else:  # behind every block, the first position before its start
        ends = (start - blocks * block) // -step + 1
    return Runs(blocks, np.minimum(ends, size), abs(step) == 1)


def runs_of_indices(indices: NDArray[np.int64], block: int) -> Runs:
    """Return the runs of a list of positions."""
    numbers = indices // block
    ends = np.append(np.flatnonzero(np.diff(numbers)) + 1, [indices.size] * bool(indices.size))
    ends = ends.astype(np.int64)
    return Runs(numbers[ends - 1], ends, cut=False)


def runs_of_joined(extents: Sequence[int], block: int) -> Runs:
    """Return the runs of arrays one after another, each with blocks of its own."""
    ends, before = [np.zeros(0, np.int64)], 0
    for extent in extents:
        edges = np.arange(1, -(-extent // block) + 1) * block
        ends.append(before + np.minimum(edges, extent))
        before += extent
    joined = np.concatenate(ends)
    return Runs(np.arange(joined.size), joined, cut=True)


def with_blocks(
    scheme: Scheme, declared: Sequence[int] | None, shape: Sequence[int], pack_axis: int
) -> Scheme:
    """Return a scheme with a block extent for every axis of a shape (None: per tensor).

    Raises
    ------
    InexactMoveError
        If the block would need more extents than a scheme can have.
    SchemeError
        If no array can have the shape.
    """
    shape = as_shape(shape)
    rank = len(shape)
    pack_axis = pack_axis if 0 <= pack_axis < rank else 0
    if declared is None or scheme.block is None:
        return scheme if pack_axis == scheme.pack_axis else scheme.replace(pack_axis=pack_axis)
    if tuple(declared) == expand_or_none(scheme, rank) and pack_axis == scheme.pack_axis:
        return scheme
    block = _without_ones(declared)
    if len(block) > MAX_BLOCK_RANK:  # what is longer than its axis may still be shortened
        block = _without_ones([min(pair) for pair in zip(declared, shape, strict=True)])
    if len(block) > MAX_BLOCK_RANK:
        problem = f"the result needs blocks of {block}, and a block has at most {MAX_BLOCK_RANK} "
        alignment = "move the blocked axes further back"
        raise inexact(f"{problem}extents", alignment, field="block", value=block)
    return scheme.replace(block=block or (1,), pack_axis=pack_axis)


def _without_ones(extents: Sequence[int]) -> tuple[int, ...]:
    """Return block extents without those on leading axes that are 1."""
    outer = next((axis for axis, extent in enumerate(extents) if extent > 1), len(extents))
    return tuple(extents[outer:])


def expand_or_none(scheme: Scheme, rank: int) -> tuple[int, ...] | None:
    """Return a scheme's block extent on every axis, or None if it has more than there are axes."""
    try:
        return expand_block(scheme, rank)
    except SchemeError:
        return None


def regroup(plan: Plan, shape: tuple[int, ...]) -> list[int]:
    """Return the block extents that an array's blocks have in another shape, in the same order.

    Every axis is a number of blocks, then a number of positions in a block. Reading all axes from
    the outside, these are the digits that a flat index is written in; each new axis must consist
    of whole digits or factors of them, blocks before positions.

    Raises
    ------
    InexactMoveError
        If a new axis would cut a block.
    """
    digits = _digits(plan)[::-1]
    extents = []
    for axis, extent in enumerate(shape):
        block = _take_digits(digits, extent)
        if block is None:
            raise _regroup_error(plan, shape, axis)
        extents.append(block)
    same = expand_or_none(plan.scheme, len(shape))
    if same and [min(*pair) for pair in zip(same, shape, strict=True)] == extents:
        return list(same)
    return extents


def _digits(plan: Plan) -> list[tuple[int, int]]:
    """Return the digits of an array as (size, block): block is 1, the size, or does not divide it.

    Neighbours that make one digit are merged.
    """
    digits: list[tuple[int, int]] = []
    for extent, block in zip(plan.shape, plan.block, strict=True):
        whole = extent % block == 0
        for size, step in [(extent // block, 1), (block, block)] if whole else [(extent, block)]:
            if size == 1:
                continue
            last_size, last_step = digits[-1] if digits else (1, 1)
            inner = step == size  # positions in one block
            if digits and ((inner and last_step > 1) or (step == 1 == last_step)):
                digits[-1] = (last_size * size, last_step * step)
            else:
                digits.append((size, step))
    return digits


def _take_digits(digits: list[tuple[int, int]], extent: int) -> int | None:
    """Take digits for an axis from the end of a list; return its block extent, None if it cannot.

    What is left of a digit goes back onto the list.
    """
    block, first = 1, True
    while extent > 1:
        size, step = digits.pop()
        inner = step == size
        ragged = not inner and step > 1
        taken = min(size, extent)
        rest = size // taken
        fits = size % taken == 0 and extent % taken == 0 and step % (rest if ragged else 1) == 0
        if not fits or (ragged and not first) or (step == 1 and block > 1):
            return None
        block *= taken if inner else step // rest if ragged else 1
        if rest > 1:
            digits.append((rest, rest if inner or ragged else 1))
        extent //= taken
        first = False
    return block


def _regroup_error(plan: Plan, shape: tuple[int, ...], axis: int) -> InexactMoveError:
    """Return the error that names the new axis that cuts a block, and any partial blocks."""
    problem = f"reshaping {plan.shape} to {shape} would split a block of {plan.block}"
    problem += f" at the new axis {axis} of extent {shape[axis]}"
    partial = [
        f"axis {old} of extent {extent} ends in a partial block (a multiple of {block} would not)"
        for old, (extent, block) in enumerate(zip(plan.shape, plan.block, strict=True))
        if extent % block
    ]
    alignment = "let every new axis hold a whole number of blocks, or divide one"
    if partial:
        problem += f": {', '.join(partial)}"
        alignment = "keep that axis as it is"
    return inexact(problem, alignment, field="shape", value=shape)


def map_params(params: Params, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Params:
    """Return parameters with scales and zero points moved by one function."""
    scales, global_scale, points = params
    moved = np.asarray(change(scales), order="C")
    moved_points = None if points is None else np.asarray(change(points), order="C")
    return Params(moved, global_scale, moved_points)


def fill_in(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return a shape of a given size, where -1 stands for what is missing.

    Raises
    ------
    SchemeError
        If no such shape has that size.
    """
    wanted = whole_numbers(shape) or ()
    known = math.prod(extent for extent in wanted if extent != -1)
    if wanted.count(-1) == 1 and known and size % known == 0:
        wanted = tuple(size // known if extent == -1 else extent for extent in wanted)
    if len(wanted) < len(shape) or min(wanted, default=0) < 0 or math.prod(wanted) != size:
        fix = f"give extents whose product is {size}; one of them may be -1"
        message = f"an array of {size} elements has no shape {cut(repr(tuple(shape)))}; {fix}"
        raise SchemeError(message, field="shape", value=tuple(shape), fix=fix)
    return wanted
