"""The five operations on CUDA arrays. Nothing here waits for the device, but for ``nonfinite``.

With ``nonfinite="raise"`` one number is read back, which waits for the stream; with the other
choices the bool that calibrate and quantize return is False without looking.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import types

from qnumba.errors import SchemeError
from qnumba.formats import thresholds
from qnumba.gpu import driver, general, routes
from qnumba.gpu.arrays import View, empty, view
from qnumba.gpu.launch import (
    BYTES,
    FLOATS,
    FORM,
    GEOMETRY,
    INTS,
    PACKING,
    POINTERS,
    ROW,
    RULES,
    decode_form,
    encode_form,
    floats,
    geometry,
    global_row,
    ints,
    one_scale,
    packing,
    run,
    run_warps,
    scale_row,
    tail_geometry,
    tail_packing,
    top,
)
from qnumba.params import Options, Params

if TYPE_CHECKING:
    from qnumba.layout import Plan

F32, F64, I32 = POINTERS["float32"], POINTERS["float64"], POINTERS["int32"]
_FOLD = 2048  # neighbours that one warp reduces


def calibrate(x: Any, plan: Plan, options: Options) -> tuple[Params, bool]:
    """Return the parameters of a CUDA array, on its device; see ``reference.calibrate``."""
    source = view(x)
    with driver.entered(source.device):
        if not plan.size:
            return _params_of_nothing(source, plan), False
        flag = Flag(source, options)
        return _calibrate(source, plan, options, flag), flag.seen()


def quantize(
    x: Any, plan: Plan, options: Options, params: Params | None, words: Any
) -> tuple[Params, bool]:
    """Fill ``words`` with the codes of a CUDA array; see ``reference.quantize``."""
    source, target = view(x), view(words)
    same_device(x=source, words=target)
    with driver.entered(source.device):
        if not plan.size:
            return params or _params_of_nothing(source, plan), False
        after(source.stream, target)
        flag = Flag(source, options)
        fused = params is None and routes.is_fused(plan, options)
        if fused and routes.is_aligned(plan, source, target):
            return _quantize_blocks(source, plan, options, target, flag), flag.seen()
        if params is None:
            params = _calibrate(source, plan, options, flag)
        _encode(source, plan, options, params, target, flag)
        return params, flag.seen()


def dequantize(words: Any, plan: Plan, params: Params, out: Any) -> None:
    """Fill ``out`` with the numbers codes stand for; see ``reference.dequantize``."""
    source, target = view(words), view(out)
    numbers = Numbers.of(params, source)
    same_device(words=source, out=target, scales=numbers.scales)
    if not plan.size:
        return
    with driver.entered(source.device):
        after(source.stream, target, numbers.scales)
        table = _table(plan, "table", source)
        pointers = numbers.pointers()
        runs = routes.runs_of(plan)
        known = routes.number_name(plan) is not None
        if not (runs and known and routes.is_aligned(plan, target, source)):
            places = (geometry(plan), packing(plan))
            _decode_any(source, target, plan, pointers, table, places, plan.size)
            return
        routes.decode(source, plan, target, pointers, table)
        if runs.tail:
            begin = plan.size - runs.tail
            rest = source._replace(pointer=source.pointer + begin * plan.code_bits // 8)
            to = target._replace(pointer=target.pointer + begin * target.itemsize)
            places = (tail_geometry(runs.tail), tail_packing(plan, runs.tail))
            _decode_any(rest, to, plan, pointers, table, places, runs.tail)


def pack(codes: Any, plan: Plan, words: Any) -> None:
    """Fill ``words`` with codes; see ``reference.pack``."""
    source, target = view(codes), view(words)
    same_device(codes=source, words=target)
    if not plan.size:
        return
    with driver.entered(source.device):
        after(source.stream, target)
        signature = types.void(BYTES, BYTES, INTS, PACKING)
        count = target.size
        arguments = (source.pointer, target.pointer, count, packing(plan))
        run(general.pack, signature, count, source.stream, *arguments)


def unpack(words: Any, plan: Plan, codes: Any) -> None:
    """Fill ``codes`` from words; see ``reference.unpack``."""
    source, target = view(words), view(codes)
    same_device(words=source, codes=target)
    if not plan.size:
        return
    with driver.entered(source.device):
        after(source.stream, target)
        signature = types.void(BYTES, BYTES, INTS, PACKING, INTS)
        arguments = (source.pointer, target.pointer, plan.size, packing(plan), int(plan.is_signed))
        run(general.unpack, signature, plan.size, source.stream, *arguments)


# --- what the operations share


class Flag:
    """Four numbers on the device: one is set where a value is not finite, two are keys of a range.

    The keys are at ``keys``; both they and the flag start at 0.
    """

    def __init__(self, source: View, options: Options) -> None:
        self._view = view(empty((4,), "int32", source))
        self._raises = options.nonfinite == "raise"
        self._stream = source.stream
        self.pointer, self.keys = self._view.pointer, self._view.pointer + 8
        clear(self.pointer, 4, source.stream)

    def seen(self) -> bool:
        """Return whether one was set; waits for the device only where that decides something."""
        if not self._raises:
            return False
        return bool(driver.read(self.pointer, (1,), np.int32, self._stream)[0])


def clear(pointer: int, count: int, stream: int) -> None:
    """Set int32 numbers to 0."""
    run(general.clear, types.void(I32, INTS), count, stream, pointer, count)


class Numbers(NamedTuple):
    """The views of a set of parameters."""

    scales: View
    global_scale: View | None
    zero_points: View | None

    @classmethod
    def of(cls, params: Params, like: View) -> Numbers:
        """Return the views; numbers on the host are copied to the device of ``like``."""
        return cls(*(None if part is None else _on_device(part, like) for part in params))

    def pointers(self) -> tuple[int, ...]:
        """Return the addresses; 0 for what is not there."""
        return tuple(0 if part is None else part.pointer for part in self)


def _on_device(part: Any, like: View) -> View:
    if isinstance(part, (np.ndarray, np.generic, float)):
        return view(driver.write(np.atleast_1d(np.asarray(part)), like.stream))
    return view(part)


def same_device(**views: View) -> None:
    """Refuse arrays of several devices.

    Raises
    ------
    SchemeError
        Naming two of them.
    """
    (first, one), *others = views.items()
    for name, other in others:
        if other.device != one.device:
            fix = "move them to one device first"
            message = f"{first} is on CUDA device {one.device}, {name} on {other.device}; {fix}"
            raise SchemeError(message, field=name, value=other.device, fix=fix)


def after(stream: int, *views: View) -> None:
    """Let a stream wait for the streams that other arrays belong to."""
    for other in views:
        if other.stream not in (stream, 0) and {other.stream, stream} != {0, 1}:
            driver.wait_for(stream, other.stream)


def _params_of_nothing(source: View, plan: Plan) -> Params:
    """Return the parameters of an array without elements, as the reference does."""
    from qnumba import reference  # noqa: PLC0415 - only here

    nothing = np.empty(plan.shape, "float32" if source.dtype == "bfloat16" else source.dtype)
    made = reference.calibrate(nothing, plan, Options())[0]
    return Params(*(None if part is None else _upload(part, source) for part in made))


def _upload(part: Any, like: View) -> Any:
    """Return a host array as one of the caller's kind."""
    array = np.asarray(part)
    copy = empty(array.shape, array.dtype.name, like)
    if array.size:
        driver.copy(view(copy).pointer, array, like.stream)
    return copy


_tables: dict[tuple[Any, ...], Any] = {}


def _table(plan: Plan, what: str, like: View) -> int:
    """Return the address of a lookup table or its thresholds; copied to each device once."""
    table = plan.scheme.table
    if table is None:
        return 0
    key = (table, what, like.device)
    if key not in _tables:
        numbers = np.array(table, np.float32) if what == "table" else thresholds(table, what)
        _tables[key] = driver.write(numbers, like.stream)
    return view(_tables[key]).pointer


def _calibrate(source: View, plan: Plan, options: Options, flag: Flag) -> Params:
    """Queue the kernels that find the parameters of an array with elements."""
    blocks = math.prod(plan.grid)
    affine = plan.scheme.mode == "affine"
    mean = options.method == "absmean"
    method = general.MEAN if mean else general.MINMAX if affine else general.AMAX
    runs = routes.runs_of(plan)
    if runs and not mean and routes.is_aligned(plan, source, None):
        pair = _fast_range(source, plan, method, flag)
    else:
        pair = _range(source, plan, method, flag)
    finish = _finish_affine if affine else _finish_symmetric
    return finish(source, plan, options, pair, blocks)


def _range(source: View, plan: Plan, method: int, flag: Flag) -> Pair:
    """Queue the general kernels that reduce every block."""
    blocks = math.prod(plan.grid)
    chunks = -(-math.prod(plan.block) // general.CHUNK)
    tasks = blocks * chunks
    pair = Pair.new(tasks, source)
    signature = types.void(POINTERS[source.dtype], GEOMETRY, INTS, INTS, INTS, F64, F64, I32)
    arguments = (source.pointer, geometry(plan), tasks, chunks, method, *pair.pointers())
    run_warps(general.statistics, signature, tasks, source.stream, *arguments, flag.pointer)
    if chunks > 1 and blocks == 1 and method != general.MEAN:
        return _fold_all(pair, chunks, method, source)
    return _fold(pair, blocks, chunks, tasks, method, source) if chunks > 1 else pair


def _fast_range(source: View, plan: Plan, method: int, flag: Flag) -> Pair:
    """Queue the fast kernels that reduce every block; what a tensor leaves over, the general."""
    affine, stream = int(method == general.MINMAX), source.stream
    blocks, tail = math.prod(plan.grid), routes.runs_of(plan).tail
    pair = Pair.new(blocks + bool(tail), source)
    keys = flag.keys
    held = None
    if plan.grid:
        held = empty((2 * blocks,), "int32", source)
        keys = view(held).pointer
        clear(keys, 2 * blocks, stream)
    routes.find_range(source, plan, affine, keys, flag.pointer)
    routes.settle(keys, pair.pointers(), blocks, affine, stream)
    if not tail:
        return pair
    rest = source.pointer + (plan.size - tail) * source.itemsize
    signature = types.void(POINTERS[source.dtype], GEOMETRY, INTS, INTS, INTS, F64, F64, I32)
    last = (pointer + 8 for pointer in pair.pointers())
    arguments = (rest, tail_geometry(tail), 1, 1, method, *last, flag.pointer)
    run_warps(general.statistics, signature, 1, stream, *arguments)
    return _fold_all(pair, 2, method, source)


def _quantize_blocks(
    source: View, plan: Plan, options: Options, target: View, flag: Flag
) -> Params:
    """Queue the kernels that calibrate and encode in one pass, after one for a global scale."""
    scales = empty(plan.grid, "float32", source)
    over, pointer = None, 0
    if plan.scheme.two_level:
        over = empty((), "float32", source)
        pointer = view(over).pointer
        whole = one_scale(plan)
        routes.find_range(source, whole, 0, flag.keys, flag.pointer)
        routes.find_global(source, plan, options, flag.keys, pointer)
    numbers = (view(scales).pointer, pointer, flag.pointer)
    routes.quantize_blocks(source, plan, options, target, *numbers)
    return Params(scales, over)


class Pair(NamedTuple):
    """Two numbers of every block, or of every part of one."""

    first: Any
    second: Any

    @classmethod
    def new(cls, count: int, like: View) -> Pair:
        """Return room for ``count`` of them."""
        return cls(empty((count,), "float64", like), empty((count,), "float64", like))

    def pointers(self) -> tuple[int, int]:
        """Return the addresses."""
        return view(self.first).pointer, view(self.second).pointer


def _fold(pair: Pair, groups: int, length: int, total: int, method: int, like: View) -> Pair:
    """Reduce ``length`` neighbours to one, ``groups`` times."""
    folded = Pair.new(groups, like)
    signature = types.void(F64, F64, F64, F64, INTS, INTS, INTS, INTS)
    arguments = (*pair.pointers(), *folded.pointers(), groups, length, total, method)
    run_warps(general.fold, signature, groups, like.stream, *arguments)
    return folded


def _fold_all(pair: Pair, count: int, method: int, like: View) -> Pair:
    """Reduce everything to one."""
    while count > 1:
        groups = -(-count // _FOLD)
        pair = _fold(pair, groups, _FOLD, count, method, like)
        count = groups
    return pair


def _finish_symmetric(
    source: View, plan: Plan, options: Options, pair: Pair, blocks: int
) -> Params:
    scales = empty(plan.grid, "float32", source)
    two_level = plan.scheme.two_level
    peak = _fold_all(pair, blocks, general.AMAX, source) if two_level else pair
    over = empty((), "float32", source) if two_level else None
    rule = RULES[options.scale_rounding]
    power = (int(rule > 1), plan.value.emax, plan.value.mantissa_bits)
    signature = types.void(
        F64, F64, F64, F32, F32, INTS, floats(4), FLOATS, floats(2), ints(3), INTS, INTS, INTS
    )
    run(
        general.finish_symmetric,
        signature,
        blocks,
        source.stream,
        *(*pair.pointers(), peak.pointers()[0], view(scales).pointer),
        *(0 if over is None else view(over).pointer, blocks, scale_row(plan), top(plan)),
        *(global_row(plan), power, rule),
        *(general.MEAN if options.method == "absmean" else general.AMAX, is_wide(source)),
    )
    return Params(scales, over)


def is_wide(source: View) -> int:
    """Return whether the compute type is float64."""
    return int(source.dtype == "float64")


def _finish_affine(source: View, plan: Plan, options: Options, pair: Pair, blocks: int) -> Params:
    scales = empty(plan.grid, "float32", source)
    points = empty(plan.grid, "int32", source)
    signature = types.void(F64, F64, F32, I32, INTS, floats(4), floats(2), INTS, INTS)
    run(
        general.finish_affine,
        signature,
        blocks,
        source.stream,
        *(*pair.pointers(), view(scales).pointer, view(points).pointer, blocks),
        *(scale_row(plan), (float(plan.value.lo), float(plan.value.hi))),
        *(RULES[options.scale_rounding], is_wide(source)),
    )
    return Params(scales, None, points)


def _encode(
    source: View, plan: Plan, options: Options, params: Params, target: View, flag: Flag
) -> None:
    """Queue the kernel that writes codes with given parameters."""
    numbers = Numbers.of(params, source)
    same_device(x=source, scales=numbers.scales)
    after(source.stream, numbers.scales)
    pointers = numbers.pointers()
    runs = routes.runs_of(plan)
    known = routes.code_name(plan, driver.capability()) is not None
    if not (runs and known and routes.is_aligned(plan, source, target)):
        places = (geometry(plan), packing(plan))
        _encode_any(source, target, plan, options, pointers, flag, places, target.size)
        return
    routes.encode(source, plan, options, target, pointers, flag.pointer)
    if runs.tail:
        begin = plan.size - runs.tail
        rest = source._replace(pointer=source.pointer + begin * source.itemsize)
        to = target._replace(pointer=target.pointer + begin * plan.code_bits // 8)
        places = (tail_geometry(runs.tail), tail_packing(plan, runs.tail))
        count = -(-runs.tail // packing(plan)[3])
        _encode_any(rest, to, plan, options, pointers, flag, places, count)


def _encode_any(
    source: View,
    target: View,
    plan: Plan,
    options: Options,
    numbers: tuple[int, ...],
    flag: Flag,
    places: tuple[Any, ...],
    count: int,
) -> None:
    """Queue the general kernel that writes ``count`` words."""
    form, row = encode_form(plan, options)
    edges = _table(plan, "float64", source)
    arguments = (INTS, F32, F32, I32, F64, I32, GEOMETRY, PACKING, FORM, ROW)
    signature = types.void(POINTERS[source.dtype], BYTES, *arguments)
    pointers = (source.pointer, target.pointer, count, *numbers, edges, flag.pointer)
    run(general.encode, signature, count, source.stream, *pointers, *places, form, row)


def _decode_any(
    source: View,
    target: View,
    plan: Plan,
    numbers: tuple[int, ...],
    table: int,
    places: tuple[Any, ...],
    count: int,
) -> None:
    """Queue the general kernel that decodes ``count`` codes."""
    form, row = decode_form(plan)
    arguments = (POINTERS[target.dtype], INTS, F32, F32, I32, F32, GEOMETRY, PACKING, FORM, ROW)
    signature = types.void(BYTES, *arguments)
    pointers = (source.pointer, target.pointer, count, *numbers, table)
    run(general.decode, signature, count, source.stream, *pointers, *places, form, row)
