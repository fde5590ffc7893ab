"""What the front door asks of CUDA arrays: to come in, and to go to the host and back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import types

from qnumba.devices import is_cuda_array
from qnumba.errors import DataError, QuantizedTypeError, SchemeError
from qnumba.formats import FLOATS
from qnumba.gpu import driver, general, operations, ranges
from qnumba.gpu.arrays import View, empty, view
from qnumba.gpu.launch import BYTES, INTS, ints, run
from qnumba.params import Params, QParams

if TYPE_CHECKING:
    from qnumba.layout import Plan

_AXES = 8
_EXACT = 2**53  # float64 holds every integer up to here
_WIDE_INTEGERS = ("int64", "uint64")


class Dtype(NamedTuple):
    """The name of a dtype that NumPy may not have."""

    name: str


class Source(NamedTuple):
    """A CUDA array as the front door looks at it."""

    view: View
    shape: tuple[int, ...]
    dtype: Dtype


def opened(x: Any) -> Source:
    """Return a CUDA array to be looked at."""
    found = view(x)
    return Source(found, found.shape, Dtype(found.dtype))


def native(source: View) -> View:
    """Return an array as the kernels take it: floats, aligned and contiguous; copied if needed.

    Integers become float64.
    """
    with driver.entered(source.device):
        aligned = source.pointer % source.itemsize == 0
        if source.strides is not None or not aligned:
            source = _gathered(source)
        if source.dtype in FLOATS:
            return source
        return _as_float64(source)


def _gathered(source: View) -> View:
    """Return a contiguous copy."""
    item = source.itemsize
    copy = view(empty((source.size * item,), "uint8", source))
    strides = source.strides
    if strides is None:
        strides = tuple(
            item * math.prod(source.shape[axis + 1 :]) for axis in range(len(source.shape))
        )
    extents, steps = _merged(source.shape, strides)
    signature = types.void(BYTES, BYTES, INTS, INTS, ints(_AXES), ints(_AXES))
    arguments = (source.pointer, copy.pointer, source.size, item, extents, steps)
    run(general.gather, signature, source.size, source.stream, *arguments)
    kept = (source.owner, copy.owner)
    return source._replace(owner=kept, pointer=copy.pointer, strides=None)


def _merged(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return extents and strides with neighbours merged where they can be, padded to eight."""
    axes: list[tuple[int, int]] = []
    for extent, step in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if axes and axes[-1][1] == extent * step:
            axes[-1] = (axes[-1][0] * extent, step)
        else:
            axes.append((extent, step))
    if len(axes) > _AXES:
        fix = "make it contiguous first"
        message = f"a strided array of {len(axes)} axes that do not merge is too much; {fix}"
        raise SchemeError(message, field="x", value=shape, fix=fix)
    axes = [(1, 0)] * (_AXES - len(axes)) + axes
    return tuple(extent for extent, _ in axes), tuple(step for _, step in axes)


def _as_float64(source: View) -> View:
    """Return integers as float64; those of 64 bits are looked at, which waits for the device."""
    copy = empty(source.shape, "float64", source)
    if source.size:
        held = view(empty((1,), "int32", source))
        ranges.clear(held.pointer, 1, source.stream)
        kind, limits = getattr(types, source.dtype), np.iinfo(source.dtype)
        pointer = types.CPointer(kind)
        signature = types.void(pointer, ranges.F64, INTS, kind, kind, ranges.I32)
        ends = (max(limits.min, -_EXACT), min(limits.max, _EXACT))
        arguments = (source.pointer, view(copy).pointer, source.size, *ends, held.pointer)
        run(general.widen, signature, source.size, source.stream, *arguments)
        wide = source.dtype in _WIDE_INTEGERS
        if wide and driver.read(held.pointer, (1,), np.int32, source.stream)[0]:
            message = (
                "an integer is beyond 2**53, where float64 stops being exact; "
                "scale the data down, or convert it to float64 yourself"
            )
            raise DataError(message)
    return view(copy)._replace(stream=source.stream, kind=source.kind)


def new_words(plan: Plan, source: View) -> Any:
    """Return words for the codes of an array, of its kind."""
    with driver.entered(source.device):
        return empty(plan.words_shape, plan.words_dtype.name, source)


def require_words(plan: Plan, words: Any, source: View) -> str:
    """Return what is wrong with words as a place for codes; empty if nothing."""
    if not is_cuda_array(words):
        return "is on the host"
    to = view(words)
    size = plan.words_dtype.itemsize * math.prod(plan.words_shape)
    if to.device != source.device:
        return f"is on CUDA device {to.device}, the input on {source.device}"
    begin, end = source.pointer, source.pointer + source.size * source.itemsize
    overlaps = to.pointer < end and begin < to.pointer + size
    return "shares memory with the input" if overlaps else ""


def codes(plan: Plan, words: Any) -> Any:
    """Return one integer per element, in an array of the words' kind."""
    if plan.scheme.store == "native":
        return words
    like = view(words)
    with driver.entered(like.device):
        made = empty(plan.shape, plan.code_dtype.name, like)
    operations.unpack(words, plan, made)
    return made


def dequantize(plan: Plan, words: Any, params: Params, dtype: Any, out: Any) -> Any:
    """Return the numbers codes stand for, in ``out`` or a new array of the words' kind.

    Raises
    ------
    SchemeError, QuantizedTypeError
        If ``out`` or the dtype does not fit.
    """
    like = view(words)
    if out is None:
        name = dtype if isinstance(dtype, str) else _dtype_name(dtype)
        _require_float(name)
        with driver.entered(like.device):
            made = empty(plan.shape, name, like)
        target = view(made)._replace(dtype=name)
    else:
        made, target = out, view(out)
        _require_float(target.dtype)
        if target.shape != plan.shape or target.strides is not None or target.pointer % 2:
            fix = f"give a contiguous array of shape {plan.shape}"
            message = f"out has shape {target.shape}; {fix}"
            raise SchemeError(message, field="out", value=target.shape, fix=fix)
    operations.dequantize(words, plan, params, target)
    return made


def _dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of NumPy or of another library."""
    try:
        known = np.dtype(dtype)
        return str(known.name if known.isnative else known.str)
    except TypeError:
        return str(dtype).rpartition(".")[2]


def _require_float(name: str) -> None:
    if name not in FLOATS:
        message = f"cannot decode to {name}; use one of {', '.join(FLOATS)}"
        raise QuantizedTypeError(message)


def to_host(plan: Plan, words: Any, params: Params) -> tuple[Any, Params]:
    """Return words and parameters as NumPy arrays; waits for the device."""
    held = view(words)
    with driver.entered(held.device):
        copy = driver.read(held.pointer, plan.words_shape, plan.words_dtype, held.stream)
        scales, over, points = (_read(part) for part in params)
    return copy, Params(scales, None if over is None else np.float32(over[()]), points)


def host_params(params: QParams) -> QParams:
    """Return parameters as NumPy arrays; waits for the device where they are on one."""
    over = _read(params.global_scale)
    return QParams(_read(params.scales), over, _read(params.zero_points))


def _read(part: Any) -> Any:
    if not is_cuda_array(part):
        return part
    held = view(part)
    return driver.read(held.pointer, held.shape, held.dtype, held.stream)


def to_device(words: Any, params: Params, like: Any) -> tuple[Any, Params]:
    """Return copies on a device, as arrays of the kind of ``like``; Numba's without it."""
    kind = View(None, 0, (), "uint8", None, driver.current_device(), 0, "numba")
    kind = kind if like is None else view(like)
    with driver.entered(kind.device):
        scales, over, points = (
            None if part is None else operations.upload(part, kind) for part in params
        )
        return operations.upload(words, kind), Params(scales, over, points)


def numbers_of(source: View) -> Any:
    """Return a NumPy copy of an array, bfloat16 as float32; waits for the device."""
    bits = "uint16" if source.dtype == "bfloat16" else source.dtype
    with driver.entered(source.device):
        array = driver.read(source.pointer, source.shape, bits, source.stream)
    if source.dtype != "bfloat16":
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)
