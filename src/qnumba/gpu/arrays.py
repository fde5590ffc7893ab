"""Any CUDA array as an address, a shape and a stream; and new arrays of the caller's own kind."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from qnumba.devices import is_cuda_array
from qnumba.errors import QuantizedTypeError
from qnumba.gpu import driver


class View(NamedTuple):
    """What a kernel needs to know of an array. ``owner`` keeps its memory alive."""

    owner: Any
    pointer: int
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None  # in bytes; None: C-contiguous
    device: int
    stream: int
    kind: str  # the library whose arrays the caller gets back

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize


def view(x: Any) -> View:
    """Return the view of a CUDA array.

    Raises
    ------
    QuantizedTypeError
        If it is none, or is masked.
    """
    if isinstance(x, View):
        return x
    root = type(x).__module__.partition(".")[0]
    if root == "torch" and getattr(x, "is_cuda", False):
        return _torch_view(x)
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is not None:
        return _interface_view(x, interface, root)
    if is_cuda_array(x):
        return _dlpack_view(x)
    message = f"{type(x).__name__} is no CUDA array; give one, or to_device() its data first"
    raise QuantizedTypeError(message)


def _torch_view(x: Any) -> View:
    """Read the fields: the interface refuses bfloat16 and tensors that require gradients."""
    torch = sys.modules["torch"]
    item = x.element_size()
    strides = None if x.is_contiguous() else tuple(step * item for step in x.stride())
    stream = torch.cuda.current_stream(x.device).cuda_stream
    dtype = str(x.dtype).rpartition(".")[2]
    shape = tuple(x.shape)
    return View(x, x.data_ptr(), shape, dtype, strides, x.device.index, stream, "torch")


def _interface_view(x: Any, interface: dict[str, Any], root: str) -> View:
    if interface.get("mask") is not None:
        message = "masked arrays have no one meaning here; fill the masked values first"
        raise QuantizedTypeError(message)
    shape, (pointer, _) = tuple(interface["shape"]), interface["data"]
    dtype = np.dtype(interface["typestr"])
    name = "bfloat16" if _is_bfloat16(x, dtype) else dtype.name
    strides = interface.get("strides")
    if strides is not None and tuple(strides) == _contiguous(shape, dtype.itemsize):
        strides = None
    stream = interface.get("stream") or 0
    device = driver.device_of(pointer) if pointer else driver.current_device()
    kind = root if root in {"cupy", "jax", "jaxlib"} else "numba"
    return View(x, pointer, shape, name, strides, device, stream, kind.removesuffix("lib"))


def _is_bfloat16(x: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether an array of unnamed two bytes says elsewhere that it is bfloat16."""
    return dtype.str[1:] == "V2" and "bfloat16" in str(getattr(x, "dtype", ""))


def _dlpack_view(x: Any) -> View:
    """Read a DLPack producer; it makes its data safe to use on the default stream."""
    from cuda.core.utils import StridedMemoryView  # noqa: PLC0415 - loads the driver library

    held = StridedMemoryView.from_dlpack(x, stream_ptr=1)
    item = held.dtype.itemsize
    strides = None if held.strides is None else tuple(step * item for step in held.strides)
    if strides == _contiguous(held.shape, item):
        strides = None
    kind = type(x).__module__.partition(".")[0]
    name = held.dtype.name
    return View(held, held.ptr, tuple(held.shape), name, strides, held.device_id, 1, kind)


def _contiguous(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array."""
    strides: list[int] = []
    for extent in reversed(shape):
        strides.append(item)
        item *= extent
    return tuple(reversed(strides))


def empty(shape: tuple[int, ...], dtype: str, like: View) -> Any:
    """Return a new array of the caller's kind, on the device that is current."""
    if like.kind == "torch":
        torch = sys.modules["torch"]
        name = dtype if hasattr(torch, dtype) else {"uint32": "int32"}.get(dtype, dtype)
        return torch.empty(shape, dtype=getattr(torch, name), device=f"cuda:{like.device}")
    if like.kind == "cupy":
        return sys.modules["cupy"].empty(shape, _numpy_name(dtype))
    return driver.allocate(shape, _numpy_name(dtype), like.stream)


def _numpy_name(dtype: str) -> str:
    """Return the dtype that holds the bits of one NumPy has no name for."""
    return "uint16" if dtype == "bfloat16" else dtype
