"""NumPy's own functions on quantized arrays: a table from each to the method that does it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.errors import QuantizedTypeError, SchemeError
from qnumba.moves import join
from qnumba.moves.index import axes_named, axis_named

if TYPE_CHECKING:
    from collections.abc import Callable


def _reshape(q: Any, shape: Any, order: str = "C") -> Any:
    if order != "C":
        message = f"a quantized array is read in row-major order, not order={order!r}; leave it out"
        raise QuantizedTypeError(message)
    return q.reshape(shape)


def _moveaxis(q: Any, source: Any, destination: Any) -> Any:
    old, new = axes_named(source, q.ndim), axes_named(destination, q.ndim)
    if len(old) != len(new):
        fix = "name as many places as axes"
        message = f"{len(old)} axes do not go to {len(new)} places; {fix}"
        raise SchemeError(message, field="destination", value=destination, fix=fix)
    order = [axis for axis in range(q.ndim) if axis not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
    return q.transpose(order)


# Arguments that a method does not take (out=, where=) are refused below.
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: len(a.shape),
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis_named(axis, a.ndim)],
    np.reshape: _reshape,
    np.ravel: lambda a: a.reshape(-1),
    np.transpose: lambda a, axes=None: a.transpose(axes),
    np.matrix_transpose: lambda x: x.swapaxes(-1, -2),
    np.moveaxis: _moveaxis,
    np.swapaxes: lambda a, axis1, axis2: a.swapaxes(axis1, axis2),
    np.flip: lambda m, axis=None: m.flip(axis),
    np.fliplr: lambda m: m.flip(1),
    np.flipud: lambda m: m.flip(0),
    np.take: lambda a, indices, axis=None: a.take(indices, axis),
    np.take_along_axis: lambda arr, indices, axis=-1: arr.take_along_axis(indices, axis),
    np.broadcast_to: lambda array, shape: array.broadcast_to(shape),
    np.expand_dims: lambda a, axis: a.expand_dims(axis),
    np.squeeze: lambda a, axis=None: a.squeeze(axis),
    np.concatenate: join.concatenate,
    np.stack: join.stack,
    np.split: lambda ary, indices_or_sections, axis=0: join.split(ary, indices_or_sections, axis),
    np.argmax: lambda a, axis=None, *, keepdims=False: a.argmax(axis, keepdims=keepdims),
    np.argmin: lambda a, axis=None, *, keepdims=False: a.argmin(axis, keepdims=keepdims),
    np.max: lambda a, axis=None, *, keepdims=False: a.max(axis, keepdims=keepdims),
    np.min: lambda a, axis=None, *, keepdims=False: a.min(axis, keepdims=keepdims),
    np.sort: lambda a, axis=-1, kind=None: a.sort(axis),  # noqa: ARG005 - stable is every kind
    np.argsort: lambda a, axis=-1, kind=None: a.argsort(axis),  # noqa: ARG005
}
FUNCTIONS |= {np.amax: FUNCTIONS[np.max], np.amin: FUNCTIONS[np.min]}


def call(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call the method that stands for a NumPy function.

    Raises
    ------
    QuantizedTypeError
        If there is none, or if it does not take these arguments.
    """
    name = f"np.{function.__name__}"
    known = FUNCTIONS.get(function)
    if known is None:
        message = f"Should be float, got quantized: {name} needs q.dequantize() first"
        raise QuantizedTypeError(message)
    try:
        inspect.signature(known).bind(*arguments, **options)
    except TypeError as error:
        message = f"{name} of a quantized array: {error}; leave it out, or q.dequantize() first"
        raise QuantizedTypeError(message) from None
    return known(*arguments, **options)
