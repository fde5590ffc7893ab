"""Axes in another order, or other axes over the same elements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from qnumba.layout import plan
from qnumba.moves.blocks import axes_of, fill_in, map_params, regroup, with_blocks
from qnumba.moves.held import Parts, rebuilt
from qnumba.moves.words import codes_of, pack, packed_axis, per_word

if TYPE_CHECKING:
    from collections.abc import Sequence


def transposed(parts: Parts, axes: Sequence[int]) -> Parts:
    """Return the array with its axes in another order: axis i of it was axis ``axes[i]``."""
    source = packed_axis(parts)
    pack_axis = 0 if source is None else len(axes) - 1 - axes.index(source)
    declared = None
    if parts.scheme.block is not None:
        declared = [axes_of(parts.plan)[axis].declared for axis in axes]
    shape = tuple(parts.shape[axis] for axis in axes)
    scheme = with_blocks(parts.scheme, declared, shape, pack_axis)
    words = parts.words.transpose(axes) if parts.shape else parts.words
    params = parts.params
    if params.scales.ndim:
        params = map_params(params, lambda array: array.transpose(axes))
    return rebuilt(scheme, shape, words, params)


def reshaped(parts: Parts, shape: Sequence[int]) -> Parts:
    """Return the array with other axes, its elements in the same order."""
    sizes = fill_in(shape, parts.plan.size)
    if parts.scheme.block is None:
        declared = None
    elif parts.plan.size:
        declared = regroup(parts.plan, sizes)
    else:
        full = [axis.declared for axis in axes_of(parts.plan)]
        declared = ([1] * len(sizes) + full)[len(full) :]
    scheme = with_blocks(parts.scheme, declared, sizes, _regrouped_pack_axis(parts, sizes))
    layout = plan(scheme, sizes)
    params = map_params(parts.params, lambda array: array.reshape(layout.grid))
    (_, length, after), (_, new_length, new_after) = parts.plan.packed, layout.packed
    per = per_word(scheme)
    whole = after == new_after and length % per == 0 == new_length % per
    same = (parts.plan.packed == layout.packed) or per == 1
    words = parts.words if whole or same else pack(codes_of(parts), scheme, sizes)
    return rebuilt(scheme, sizes, words, params)


def _regrouped_pack_axis(parts: Parts, shape: tuple[int, ...]) -> int:
    """Return the packed axis of another shape: the one along which neighbours stay neighbours."""
    axis = packed_axis(parts)
    if axis is None:
        return 0
    step, inner = math.prod(parts.shape[axis + 1 :]), 1
    for pack_axis, extent in enumerate(reversed(shape)):
        if inner <= step < inner * extent:
            return pack_axis
        inner *= extent
    return parts.scheme.pack_axis
