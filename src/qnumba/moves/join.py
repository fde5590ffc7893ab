"""Several arrays become one, or one several: concatenate, stack, split."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from qnumba.errors import QuantizedTypeError, SchemeError, cut
from qnumba.fields import whole_number, whole_numbers
from qnumba.moves.blocks import (
    Axis,
    InexactMoveError,
    axes_of,
    inexact,
    map_params,
    runs_of_joined,
    with_blocks,
)
from qnumba.moves.encode import encode_again
from qnumba.moves.held import Held, Parts, like, parts_of, rebuilt
from qnumba.moves.index import axis_named
from qnumba.moves.methods import Moves
from qnumba.moves.words import codes_of, pack, packed_axis, per_word
from qnumba.params import Params

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from qnumba.scheme import Scheme

Q = TypeVar("Q", bound=Moves)


def concatenate(arrays: Sequence[Q], axis: int | None = 0, *, requantize: bool = False) -> Q:
    """Join quantized arrays of one scheme along an axis.

    Parameters
    ----------
    arrays : sequence of QArray
        Equal in scheme and in all extents but that along ``axis``. Schemes with one scale for
        the whole array must have the same scale, two-level schemes the same global scale.
    axis : int or None
        The axis to join along; None joins the flattened arrays.
    requantize : bool
        Where codes and scales cannot be joined as they are: decode all, join, and quantize with
        the scheme of the first array.

    Returns
    -------
    QArray

    Raises
    ------
    InexactMoveError
        If an array other than the last ends in a partial block, or if the schemes or the scales
        of whole arrays differ. Pass ``requantize=True``.
    SchemeError
        If the shapes do not fit.
    QuantizedTypeError
        If something given is not quantized.
    """
    given = _require_arrays(arrays, "concatenate")
    if axis is None:
        given = [q.reshape(-1, requantize=requantize) for q in given]
        axis = 0
    rank = len(given[0].shape)
    along = axis_named(axis, rank)
    others = {(*q.shape[:along], *q.shape[along + 1 :]) for q in given}
    if len(others) > 1 or any(len(q.shape) != rank for q in given):
        raise _bad_shapes("concatenate", given, f"agree in all extents but that of axis {along}")
    try:
        return _joined(given, along)
    except InexactMoveError:
        if not requantize:
            raise
    numbers = np.concatenate([q.dequantize() for q in given], along)
    return encode_again(given[0], numbers)


def stack(arrays: Sequence[Q], axis: int = 0, *, requantize: bool = False) -> Q:
    """Join quantized arrays of one scheme and shape along a new axis.

    Parameters
    ----------
    arrays : sequence of QArray
        Equal in scheme and shape; see ``concatenate`` for their scales.
    axis : int
        Where the new axis stands in the result.
    requantize : bool
        As for ``concatenate``.

    Returns
    -------
    QArray

    Raises
    ------
    InexactMoveError
        If the schemes or the scales of whole arrays differ. Pass ``requantize=True``.
    SchemeError
        If the shapes differ.
    QuantizedTypeError
        If something given is not quantized.
    """
    given = _require_arrays(arrays, "stack")
    if len({q.shape for q in given}) > 1:
        raise _bad_shapes("stack", given, "have one shape")
    return concatenate([q.expand_dims(axis) for q in given], axis, requantize=requantize)


def split(
    q: Q, sections: int | Sequence[int], axis: int = 0, *, requantize: bool = False
) -> list[Q]:
    """Cut a quantized array into parts along an axis.

    Parameters
    ----------
    q : QArray
        The array to cut.
    sections : int or sequence of int
        The number of equal parts, or the positions to cut at.
    axis : int
        The axis to cut along.
    requantize : bool
        Where a cut goes through a block: decode that part and quantize it again.

    Returns
    -------
    list of QArray

    Raises
    ------
    InexactMoveError
        If a cut goes through a block, so that a part would start with a piece of one.
    SchemeError
        If the axis does not divide into that many equal parts, or the positions are no integers.
    """
    (q,) = _require_arrays([q], "split")
    along = axis_named(axis, len(q.shape))
    extent = q.shape[along]
    cuts = whole_numbers(sections)
    if cuts is None:
        parts = whole_number(sections)
        if parts is None or parts < 1 or extent % parts:
            fix = "give a number that divides it, or the positions to cut at"
            given = cut(repr(sections))
            message = f"axis {along} of extent {extent} has no {given} equal parts; {fix}"
            raise SchemeError(message, field="sections", value=sections, fix=fix)
        cuts = tuple(extent // parts * part for part in range(1, parts))
    edges = [0, *cuts, extent]
    before = (slice(None),) * along
    return [
        q.slice((*before, slice(start, stop)), requantize=requantize)
        for start, stop in pairwise(edges)
    ]


def _joined(arrays: list[Q], axis: int) -> Q:
    """Return arrays joined, every code and scale as it is."""
    filled = [q for q in arrays if q.size] or arrays
    if len({q.scheme for q in filled}) > 1:
        names = " and ".join(sorted({repr(str(q.scheme)) for q in filled})[:2])
        problem = f"arrays of the schemes {names} do not join"
        raise inexact(problem, "bring all to one scheme", field="arrays", value=names)
    joined = like(filled[0], _joined_parts([parts_of(q) for q in filled], axis))
    if any(q.options != joined.options for q in filled):
        joined._made = (joined.source_dtype, "")  # noqa: SLF001 - it was made here
    return joined


def _joined_parts(arrays: list[Parts], axis: int) -> Parts:
    """Return the parts of arrays of one scheme joined."""
    first = arrays[0]
    declared, params = _joined_params(arrays, axis)
    extents = [parts.shape[axis] for parts in arrays]
    shape = (*first.shape[:axis], sum(extents), *first.shape[axis + 1 :])
    scheme = with_blocks(first.scheme, declared, shape, first.scheme.pack_axis)
    per = per_word(scheme)
    if packed_axis(first) != axis or not any(extent % per for extent in extents[:-1]):
        words = np.concatenate([parts.words for parts in arrays], axis)
    else:
        words = pack(np.concatenate([codes_of(parts) for parts in arrays], axis), scheme, shape)
    return rebuilt(scheme, shape, words, params)


def _joined_params(arrays: list[Parts], axis: int) -> tuple[list[int] | None, Params]:
    """Return the block extents of joined arrays, and their parameters."""
    first, scheme = arrays[0].params, arrays[0].scheme
    held = [parts.params for parts in arrays]
    if scheme.block is None:
        if len({_bits(params.scales) + _bits(params.zero_points) for params in held}) > 1:
            raise _unequal("scale or zero point of the whole array", scheme)
        return None, first
    if len({_bits(params.global_scale) for params in held}) > 1:
        raise _unequal("global scale", scheme)
    axes = [axes_of(parts.plan)[axis] for parts in arrays]
    widest = max(axes, key=lambda each: each.block)
    runs = runs_of_joined([each.extent for each in axes], widest.declared)
    extent = runs.extent(widest) if any(parts.plan.size for parts in arrays) else widest.declared
    if extent is None:
        raise _partial(axes, widest.block, axis)
    declared = [each.declared for each in axes_of(arrays[0].plan)]
    declared[axis] = extent
    points = [params.zero_points for params in held if params.zero_points is not None]
    joined = Params(
        np.concatenate([params.scales for params in held], axis),
        first.global_scale,
        np.concatenate(points, axis) if points else None,
    )
    return declared, map_params(joined, lambda array: np.take(array, runs.at(extent), axis))


def _partial(axes: list[Axis], block: int, axis: int) -> InexactMoveError:
    """Return the error of an array that something follows though its last block is partial."""
    number = next(i for i, each in enumerate(axes) if each.extent % block)
    problem = (
        f"array {number} ends in a partial block along axis {axis}: {axes[number].extent} is not "
        f"a multiple of {block}"
    )
    return inexact(problem, "join after whole blocks only", field="axis", value=axis)


def _bits(part: Any) -> bytes:
    return b"" if part is None else np.asarray(part).tobytes()


def _unequal(what: str, scheme: Scheme) -> InexactMoveError:
    problem = f"the arrays differ in the {what} ({str(scheme)!r})"
    alignment = "quantize them with the same params="
    return inexact(problem, alignment, field="arrays", value=str(scheme))


def _require_arrays(arrays: Iterable[Q], what: str) -> list[Q]:
    """Return the arrays as a list, if there are some and all are quantized."""
    given: list[Any] = list(arrays) if hasattr(arrays, "__iter__") else [arrays]
    for q in given:
        if not isinstance(q, Moves):
            message = f"{what} takes quantized arrays here, got {type(q).__name__}; "
            message += "quantize() it first, or dequantize() the others"
            raise QuantizedTypeError(message)
    if not given:
        fix = "give at least one array"
        raise SchemeError(f"there is nothing to {what}; {fix}", field="arrays", value=[], fix=fix)
    return given


def _bad_shapes(what: str, arrays: Sequence[Held], wish: str) -> SchemeError:
    shapes = ", ".join(str(q.shape) for q in arrays)
    fix = f"let them {wish}"
    message = f"arrays of shapes {shapes} do not {what}; {fix}"
    return SchemeError(message, field="arrays", value=shapes, fix=fix)
