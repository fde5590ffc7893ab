"""The five operations on CUDA arrays. Nothing here waits for the device, but for ``nonfinite``.

With ``nonfinite="raise"`` one number is read back, which waits for the stream; with the other
choices the bool that calibrate and quantize return is False without looking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import types

from qnumba.errors import SchemeError
from qnumba.formats import thresholds
from qnumba.gpu import driver, general, ranges, routes
from qnumba.gpu.arrays import View, empty, view
from qnumba.gpu.launch import (
    BYTES,
    FORM,
    GEOMETRY,
    INTS,
    PACKING,
    POINTERS,
    ROW,
    decode_form,
    encode_form,
    geometry,
    one_scale,
    packing,
    run,
    tail_geometry,
    tail_packing,
)
from qnumba.params import Options, Params

if TYPE_CHECKING:
    from qnumba.layout import Plan

F32, F64, I32 = POINTERS["float32"], POINTERS["float64"], POINTERS["int32"]


def calibrate(x: Any, plan: Plan, options: Options) -> tuple[Params, bool]:
    """Return the parameters of a CUDA array, on its device; see ``reference.calibrate``."""
    source = view(x)
    with driver.entered(source.device):
        if not plan.size:
            return _params_of_nothing(source, plan), False
        flag = ranges.Flag(source, options)
        return ranges.find(source, plan, options, flag), flag.seen()


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
        flag = ranges.Flag(source, options)
        fused = params is None and routes.is_fused(plan, options)
        if fused and routes.is_aligned(plan, source, target):
            return _quantize_blocks(source, plan, options, target, flag), flag.seen()
        if params is None:
            params = ranges.find(source, plan, options, flag)
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
        if not (runs and routes.is_aligned(plan, target, source)):
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
    return Params(*(None if part is None else upload(part, source) for part in made))


def upload(part: Any, like: View) -> Any:
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


def _quantize_blocks(
    source: View, plan: Plan, options: Options, target: View, flag: ranges.Flag
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
    numbers, edges = (view(scales).pointer, pointer), _table(plan, "float32", source)
    routes.quantize_blocks(source, plan, options, target, numbers, edges, flag.pointer)
    return Params(scales, over)


def _encode(
    source: View, plan: Plan, options: Options, params: Params, target: View, flag: ranges.Flag
) -> None:
    """Queue the kernel that writes codes with given parameters."""
    numbers = Numbers.of(params, source)
    same_device(x=source, scales=numbers.scales)
    after(source.stream, numbers.scales)
    pointers = numbers.pointers()
    runs = routes.runs_of(plan)
    if not (runs and routes.is_aligned(plan, source, target)):
        places = (geometry(plan), packing(plan))
        _encode_any(source, target, plan, options, pointers, flag, places, target.size)
        return
    edges = _table(plan, "float32", source)
    routes.encode(source, plan, options, target, pointers, edges, flag.pointer)
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
    flag: ranges.Flag,
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


def forget_tables() -> None:
    """Drop the lookup tables that devices hold, as their memory goes away."""
    _tables.clear()
