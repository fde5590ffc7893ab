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
from qnumba.gpu import driver, general
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
    packing,
    run,
    run_warps,
    scale_row,
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
        form, row = decode_form(plan)
        table = _table(plan, "table", source)
        arguments = (POINTERS[target.dtype], INTS, F32, F32, I32, F32, GEOMETRY, PACKING, FORM, ROW)
        signature = types.void(BYTES, *arguments)
        places = (geometry(plan), packing(plan), form, row)
        pointers = (source.pointer, target.pointer, plan.size, *numbers.pointers(), table)
        run(general.decode, signature, plan.size, source.stream, *pointers, *places)


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
    """A number on the device that a kernel sets where a value is not finite."""

    def __init__(self, source: View, options: Options) -> None:
        self._view = view(empty((1,), "int32", source))
        self._raises = options.nonfinite == "raise"
        self._stream = source.stream
        self.pointer = self._view.pointer
        if self._raises:
            run(general.clear, types.void(I32), 1, source.stream, self.pointer)

    def seen(self) -> bool:
        """Return whether one was set; waits for the device only where that decides something."""
        if not self._raises:
            return False
        return bool(driver.read(self.pointer, (1,), np.int32, self._stream)[0])


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
    chunks = -(-math.prod(plan.block) // general.CHUNK)
    tasks = blocks * chunks
    pair = Pair.new(tasks, source)
    signature = types.void(POINTERS[source.dtype], GEOMETRY, INTS, INTS, INTS, F64, F64, I32)
    arguments = (source.pointer, geometry(plan), tasks, chunks, method, *pair.pointers())
    run_warps(general.statistics, signature, tasks, source.stream, *arguments, flag.pointer)
    if chunks > 1 and blocks == 1 and not mean:
        pair = _fold_all(pair, chunks, method, source)
    elif chunks > 1:
        pair = _fold(pair, blocks, chunks, tasks, method, source)
    finish = _finish_affine if affine else _finish_symmetric
    return finish(source, plan, options, pair, blocks)


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
    form, row = encode_form(plan, options)
    edges = _table(plan, "float64", source)
    arguments = (INTS, F32, F32, I32, F64, I32, GEOMETRY, PACKING, FORM, ROW)
    signature = types.void(POINTERS[source.dtype], BYTES, *arguments)
    pointers = (*numbers.pointers(), edges, flag.pointer)
    places = (geometry(plan), packing(plan), form, row)
    count = target.size
    run(
        general.encode,
        signature,
        count,
        source.stream,
        *(source.pointer, target.pointer, count, *pointers, *places),
    )
