"""Another scheme for the same array: with every number kept, or quantized again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from qnumba.errors import SchemeError
from qnumba.formats import decode_table
from qnumba.layout import Plan, plan
from qnumba.moves.blocks import InexactMoveError
from qnumba.moves.encode import encode
from qnumba.moves.held import Held, Parts, like, parts_of, rebuilt
from qnumba.moves.words import codes_of, pack
from qnumba.params import Options, Params
from qnumba.reference import store_scale
from qnumba.validate import as_scheme, require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qnumba.scheme import Scheme

Q = TypeVar("Q", bound=Held)


def requantized(q: Q, scheme: Scheme | str, options: dict[str, Any]) -> Q:
    """Return the decoded numbers quantized with another scheme."""
    known = as_scheme(scheme)
    unknown = options.keys() - set(Options._fields)
    if unknown:
        fix = f"use {', '.join(Options._fields)}"
        message = f"{', '.join(sorted(unknown))} is no option; {fix}"
        raise SchemeError(message, field="options", value=options, fix=fix)
    return encode(q, _numbers_of(q), known, Options(**options))


def _numbers_of(q: Held) -> NDArray[Any]:
    """Return the decoded numbers of an array in the host's memory."""
    parts_of(q)  # refuses any other
    return q.dequantize()


def changed(scheme: Scheme, other: Scheme | str | None, changes: dict[str, Any]) -> Scheme:
    """Return the scheme that is asked for."""
    wanted = scheme if other is None else as_scheme(other)
    return wanted.replace(**changes) if changes else wanted


def converted(q: Q, scheme: Scheme) -> Q:
    """Return an array of another scheme that decodes to the same bits."""
    require(scheme, q.shape, "float32")
    if not q.size:
        return encode(q, _numbers_of(q), scheme, Options())
    parts, layout = parts_of(q), plan(scheme, q.shape)
    params = _regrid(_relevel(parts, scheme), parts.plan, layout)
    _require_stored(params, layout)
    codes = _translate(parts, layout)
    if codes is None and (scheme.store, scheme.pack_axis) == (q.scheme.store, q.scheme.pack_axis):
        words = parts.words
    else:
        words = pack(codes_of(parts) if codes is None else codes, scheme, q.shape)
    return like(q, rebuilt(scheme, q.shape, words, params))


def _relevel(parts: Parts, scheme: Scheme) -> Params:
    """Return the parameters in one level, or in two, as the other scheme has them."""
    scales, global_scale, points = parts.params
    mode = parts.scheme.mode
    if (mode == "affine") != (scheme.mode == "affine"):
        reason = f"{mode} codes and {scheme.mode} codes are not decoded the same way"
        raise _changes("mode", scheme.mode, reason)
    if scheme.two_level and global_scale is None:
        global_scale = np.float32(1)
    elif not scheme.two_level and global_scale is not None:
        scales, global_scale = np.asarray(global_scale * scales, np.float32), None
    return Params(scales, global_scale, points)


def _regrid(params: Params, source: Plan, target: Plan) -> Params:
    """Return the parameters of other blocks, if they say the same about every element."""
    if source.grid == target.grid and source.block == target.block:
        return params
    old, new = ([max(step, 1) for step in each.block] for each in (source, target))
    starts = [np.arange(0, n, step) for n, step in zip(target.shape, new, strict=True)]
    edges = [
        np.union1d(start, np.arange(0, n, step))
        for start, n, step in zip(starts, source.shape, old, strict=True)
    ]
    moved = []
    for array in (params.scales, params.zero_points):
        if array is None:
            continue
        chosen = _at(array, starts, old)
        if (_at(array, edges, old) != _at(chosen, edges, new)).any():
            reason = f"blocks of {target.block} would join blocks of {source.block} that differ"
            raise _changes("block", target.scheme.block, reason)
        moved.append(chosen.reshape(target.grid))
    return Params(moved[0], params.global_scale, *moved[1:])


def _at(array: NDArray[Any], positions: list[NDArray[Any]], steps: list[int]) -> NDArray[Any]:
    """Return what stands in a grid of blocks for the elements at positions along every axis."""
    blocks = [place // step for place, step in zip(positions, steps, strict=True)]
    grid = array.reshape(array.shape or (1,) * len(blocks))
    return grid[np.ix_(*blocks)] if blocks else grid


def _require_stored(params: Params, layout: Plan) -> None:
    """Refuse scales and zero points that the scheme has no room for."""
    stored = store_scale(params.scales, layout.scale, "up")
    differ = (stored != params.scales).reshape(-1)
    if differ.any():
        scale = params.scales.reshape(-1)[differ.argmax()]
        reason = f"the scale {scale!s} is no {layout.scale.name} number"
        raise _changes("block_scale", layout.scale.name, reason)
    points, value = params.zero_points, layout.value
    if points is not None and not value.lo <= points.min() <= points.max() <= value.hi:
        reason = f"the zero points run from {points.min()} to {points.max()}"
        raise _changes("value", value.name, reason)


def _translate(parts: Parts, layout: Plan) -> NDArray[Any] | None:
    """Return the codes that stand for the same numbers, or None where they are the same."""
    source, target = _numbers(parts.plan), _numbers(layout)
    if parts.plan.value.name == layout.value.name and source.tobytes() == target.tobytes():
        return None
    legal = {
        _bits(number): code
        for code, number in reversed(list(enumerate(target)))
        if not layout.is_signed or layout.value.lo <= number <= layout.value.hi
    }
    new = np.array([legal.get(_bits(number), -1) for number in source])
    patterns = codes_of(parts).view(np.uint8) & np.uint8(source.size - 1)
    used = np.bincount(patterns.reshape(-1), minlength=source.size) > 0
    missing = np.flatnonzero(used & (new < 0))
    if missing.size:
        reason = f"it has no code for {source[missing[0]]!s}, which a code of the array stands for"
        raise _changes("value" if layout.table is None else "table", layout.value.name, reason)
    codes: NDArray[Any] = new.astype(np.uint8)[patterns]
    if layout.is_signed:
        unused = 8 - layout.value.bits
        codes = (codes << np.uint8(unused)).view(np.int8) >> np.int8(unused)
    return codes


def _numbers(layout: Plan) -> NDArray[np.float32]:
    """Return what every code stands for, before its scale."""
    return decode_table(layout.value.name) if layout.table is None else layout.table


def _bits(number: np.float32) -> object:
    """Return what tells numbers apart: the bits, but any NaN of one sign for another."""
    return bool(np.signbit(number)) if np.isnan(number) else number.tobytes()


def _changes(field: str, value: object, reason: str) -> InexactMoveError:
    """Return the error of a scheme that cannot hold the numbers there are."""
    fix = "requantize() to accept that numbers change"
    message = f"the scheme with {field}={value} cannot hold these numbers: {reason}; {fix}"
    return InexactMoveError(message, field=field, value=value, fix=fix)
