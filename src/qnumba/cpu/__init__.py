"""The CPU backend: the operations of ``reference``, compiled by Numba. Same names, same bits.

Here a plan and its arrays become the arguments of a kernel. ``jobs.py`` makes the plan's numbers,
``kernels.py``, ``chunks.py`` and ``packing.py`` loop, ``ranges.py``, ``scales.py`` and ``tiles.py``
calculate, with the loops over runs of values that ``runs.py`` names.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba import reference
from qnumba.cpu import chunks, kernels, packing
from qnumba.cpu.jit import as_input, launch
from qnumba.cpu.jobs import TASK, Job, Jobs, jobs
from qnumba.formats import GLOBAL_TINY, SCALES, global_max
from qnumba.params import Options, Params

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qnumba.layout import Plan

_DEFAULT = Options()
_NO_POINTS = np.empty(0, np.int32)
_NO_WORDS = np.empty(0, np.uint8)
_NO_RANGE = {"f": np.empty(0, np.float32), "d": np.empty(0, np.float64)}
_HALF = np.dtype(np.float16)


def calibrate(x: NDArray[Any], plan: Plan, options: Options) -> tuple[Params, bool]:
    """Return the parameters of an array, and whether it holds NaN or infinity.

    See ``qnumba.reference.calibrate``.
    """
    if not x.size:
        return reference.calibrate(x, plan, options)
    work = jobs(plan, options, _is_brain(x))
    arrays = _arrays(x, plan, work)
    global_scale = _measure(arrays, plan, options, work)
    if plan.scheme.two_level:
        _quantize(arrays, work.store, global_scale)
    elif not work.is_large:
        _quantize(arrays, work.measure_and_store)
    return _params(arrays, plan, global_scale), bool(arrays.flags[0])


def quantize(
    x: NDArray[Any], plan: Plan, options: Options, params: Params | None, words: NDArray[Any]
) -> tuple[Params, bool]:
    """Fill ``words`` with the codes of an array; calibrate it first where params is None.

    See ``qnumba.reference.quantize``.
    """
    if not x.size:
        return reference.quantize(x, plan, options, params, words)
    work = jobs(plan, options, _is_brain(x))
    is_across = plan.packed[2] > 1
    codes = np.empty(x.size, np.uint8) if is_across else _bytes(words)
    arrays = _arrays(x, plan, work, codes, params)
    if params is not None:
        global_scale = params.global_scale
        _quantize(arrays, work.encode, global_scale)
    else:
        global_scale = _measure(arrays, plan, options, work)
        if work.is_large and plan.scheme.two_level:
            _quantize(arrays, work.store, global_scale)
        if work.is_large:
            _quantize(arrays, work.encode, global_scale)
        elif plan.scheme.two_level:
            _quantize(arrays, work.store_and_encode, global_scale)
        else:
            _quantize(arrays, work.measure_to_encode)
        params = _params(arrays, plan, global_scale)
    if is_across:
        pack(codes.reshape(plan.shape), plan, words)
    return params, bool(arrays.flags[0])


def dequantize(words: NDArray[Any], plan: Plan, params: Params, out: NDArray[Any]) -> None:
    """Fill ``out`` (float16, bfloat16, float32 or float64) with the numbers codes stand for."""
    if not out.size:
        return
    work = jobs(plan, _DEFAULT, _is_brain(out))
    if plan.packed[2] > 1:
        codes = np.empty(plan.shape, np.uint8)
        _unpack_across(words, plan, codes, 0)
        words = codes
    points = params.zero_points
    launch(
        kernels.dequantize,
        out.size,
        work.decode.parts,
        work.decode.step,
        as_input(_bytes(words)),
        work.decode.row,
        1.0 if params.global_scale is None else float(params.global_scale),
        work.table,
        as_input(params.scales.reshape(-1)),
        as_input(_NO_POINTS if points is None else points.reshape(-1)),
        _flat(out),
    )


def pack(codes: NDArray[Any], plan: Plan, words: NDArray[Any]) -> None:
    """Fill ``words`` with codes: the first in the lowest bits, lines padded with zeros."""
    if not codes.size:
        words[...] = 0
    elif plan.scheme.store == "native":
        words[...] = codes.view(words.dtype)
    elif plan.packed[2] > 1:
        before, length, after = plan.packed
        launch(
            packing.pack_across,
            codes.size,
            math.prod(words.shape) // after,
            max(1, TASK // after),
            as_input(codes.view(np.uint8).reshape(before, length, after)),
            plan.code_bits,
            words.reshape(before, -1, after),
        )
    else:
        launch(
            packing.pack_lines,
            codes.size,
            *packing.pieces(plan.rows, plan.cols),
            as_input(_bytes(codes)),
            plan.cols,
            plan.row_bytes,
            plan.code_bits,
            _bytes(words),
        )


def unpack(words: NDArray[Any], plan: Plan, codes: NDArray[Any]) -> None:
    """Fill ``codes`` from words; two's complement values are sign-extended."""
    sign = 1 << (plan.code_bits - 1) if plan.is_signed else 0
    if not codes.size:
        return
    if plan.scheme.store == "native":
        codes[...] = words.view(codes.dtype)
    elif plan.packed[2] > 1:
        _unpack_across(words, plan, codes, sign)
    else:
        launch(
            packing.unpack_lines,
            codes.size,
            *packing.pieces(plan.rows, plan.cols),
            as_input(_bytes(words)),
            plan.cols,
            plan.row_bytes,
            plan.code_bits,
            sign,
            _bytes(codes),
        )


def _unpack_across(words: NDArray[Any], plan: Plan, codes: NDArray[Any], sign: int) -> None:
    before, length, after = plan.packed
    launch(
        packing.unpack_across,
        codes.size,
        before * length,
        max(1, TASK // after),
        as_input(words.reshape(before, -1, after)),
        plan.code_bits,
        sign,
        codes.view(np.uint8).reshape(before, length, after),
    )


class _Arrays(NamedTuple):
    """What a kernel reads and fills: all flat."""

    x: NDArray[Any]
    edges: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    scales: NDArray[np.float32]
    points: NDArray[np.int32]
    words: NDArray[np.uint8]
    flags: NDArray[np.uint8]


def _arrays(
    x: NDArray[Any],
    plan: Plan,
    work: Jobs,
    words: NDArray[np.uint8] = _NO_WORDS,
    params: Params | None = None,
) -> _Arrays:
    """Return the arrays of a call. Ranges start at 0; symmetric float32 ones become the scales."""
    x = as_input(_flat(x))
    compute = "d" if x.dtype.char == "d" else "f"
    low = high = _NO_RANGE[compute]
    if params is not None:
        scales = _as_output(params.scales)
        points = _NO_POINTS if params.zero_points is None else _as_output(params.zero_points)
    else:
        scales, points = np.zeros(work.blocks, np.float32), _NO_POINTS
        high = scales if compute == "f" else np.zeros(work.blocks)
        if plan.scheme.mode == "affine":
            low, high = np.zeros((2, work.blocks), compute)
            points = np.empty(work.blocks, np.int32)
    flags = np.zeros(1, np.uint8)
    return _Arrays(x, work.edges[compute], low, high, scales, points, words, flags)


def _measure(arrays: _Arrays, plan: Plan, options: Options, work: Jobs) -> np.float32 | None:
    """Find ranges that have to be known before any scale; return the global scale."""
    is_two_level = plan.scheme.two_level
    if work.is_large:
        x, _, low, high, scales, points, _, flags = arrays
        job = work.reduce if is_two_level else work.reduce_and_store
        partial = np.empty((work.blocks * work.chunks, 2))
        launch(chunks.measure, x.size, job.parts, job.step, x, job.row, partial, flags)
        chunks.fold(job.row, partial, low, high, scales, points)
    elif is_two_level:
        _quantize(arrays, work.measure)
    return _global_scale(arrays.high, plan, options) if is_two_level else None


def _quantize(
    arrays: _Arrays,
    job: Job,
    global_scale: np.float32 | None = None,
) -> None:
    """Run the kernel that measures, stores and encodes."""
    x, edges, low, high, scales, points, words, flags = arrays
    share = 1.0 if global_scale is None else float(global_scale)
    launch(
        kernels.quantize,
        x.size,
        job.parts,
        job.step,
        x,
        job.row,
        share,
        edges,
        low,
        high,
        scales,
        points,
        words,
        flags,
    )


def _global_scale(high: NDArray[Any], plan: Plan, options: Options) -> np.float32:
    """Return the scale that puts the largest block scale at the end of its dtype."""
    real = high.dtype.type
    half = plan.value.half_range if plan.table is None else np.abs(plan.table).max()
    with np.errstate(over="ignore"):  # a table of tiny numbers: the scale saturates
        largest = min(high.max() / real(half), real(SCALES["F32"].max))
    share = largest / real(plan.scale.max)
    stored = np.float32(share)
    if options.scale_rounding == "up" and stored < share:
        stored = np.nextafter(stored, np.float32(np.inf))
    return np.float32(min(max(float(stored), GLOBAL_TINY), global_max(plan.scale)))


def _params(arrays: _Arrays, plan: Plan, global_scale: np.float32 | None) -> Params:
    points = arrays.points.reshape(plan.grid) if plan.scheme.mode == "affine" else None
    return Params(arrays.scales.reshape(plan.grid), global_scale, points)


def _is_brain(array: NDArray[Any]) -> bool:
    """Return whether an array is bfloat16."""
    return array.dtype.itemsize == _HALF.itemsize and array.dtype != _HALF


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    """Return a contiguous float array in one axis; 16-bit floats as their bits."""
    flat = array.reshape(-1)
    return flat.view(np.uint16) if array.dtype.itemsize == _HALF.itemsize else flat


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8)


def _as_output(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in one axis that could be written, as the kernel that measures writes it."""
    return np.require(array, requirements=["C", "W"]).reshape(-1)
