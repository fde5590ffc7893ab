"""An emulated GPU where numba-cuda and the package look for one.

Test tooling: it patches private names of numba-cuda 0.30, which is why that is pinned.
"""

from __future__ import annotations

import contextlib
import types as plain
from functools import cache
from unittest import mock

import numpy as np
from numba import types
from numba.cuda import codegen, dispatcher

from emulator.machine import launch
from emulator.memory import Memory
from emulator.parse import Module

SM80, SM90, SM100, SM120 = (8, 0), (9, 0, "a"), (10, 0, "a"), (12, 0, "a")
TARGETS = (SM80, SM90, SM100, SM120)


class Array:
    """An array on the emulated device, with the CUDA array interface."""

    def __init__(self, device, pointer, shape, dtype, name=None):
        self.device, self.pointer, self.shape = device, pointer, tuple(shape)
        self.dtype = np.dtype(dtype)
        self.name = name or self.dtype.name

    @property
    def size(self):
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "version": 3,
            "strides": None,
            "stream": None,
        }

    def get(self):
        """Return a copy; every byte must have been written."""
        return self.device.memory.read(self.pointer, self.dtype, self.size).reshape(self.shape)

    copy_to_host = get  # as Numba's arrays have it


class Device:
    """What the package's driver module offers, without a driver."""

    def __init__(self, target, memory_size):
        self.target, self.memory = target, Memory(memory_size)
        self.runs, self.launches, self.waits, self.entries, self.syncs = [], [], [], [], 0
        self.number = 0

    def put(self, array, offset=0):
        """Return a copy of a host array, ``offset`` bytes off a multiple of 256."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        return Array(self, self.memory.put(array, offset), array.shape, array.dtype)

    def empty(self, shape, dtype, offset=0):
        """Return an array that nobody wrote."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return Array(self, self.memory.new(size, offset), shape, dtype)

    def forget(self):
        """Drop all memory, the tables that the package keeps in it, and the runs that saw it."""
        from qnumba.gpu import operations

        self.memory.forget()
        self.runs.clear()  # each holds the registers of all its threads
        operations.forget_tables()

    # the names of qnumba.gpu.driver

    def current_device(self):
        return self.number

    def capability(self):
        return self.target

    def multiprocessors(self):
        return 2

    def entered(self, device):
        self.entries.append(device)
        return contextlib.nullcontext()

    def device_of(self, _pointer):
        return 0

    def stream_of(self, handle):
        return handle or 0

    def wait_for(self, stream, other):
        self.waits.append((stream, other))

    def allocate(self, shape, dtype, _handle):
        return self.empty(shape, dtype)

    def read(self, pointer, shape, dtype, _handle):
        self.syncs += 1
        count = int(np.prod(shape, dtype=np.int64))
        return self.memory.read(pointer, dtype, count).reshape(shape)

    def copy(self, pointer, array, _handle):
        self.syncs += 1
        self.memory.write(pointer, np.asarray(array))

    def write(self, array, _handle):
        self.syncs += 1
        return self.put(array)


DRIVER_NAMES = (
    *("current_device", "capability", "multiprocessors", "entered", "device_of", "stream_of"),
    *("wait_for", "allocate", "read", "copy", "write"),
)


def leaves(kind, argument):
    """Yield the numbers that a kernel's argument is made of, as its parameters are."""
    if isinstance(kind, types.BaseTuple):
        for part_kind, part in zip(kind, argument, strict=True):
            yield from leaves(part_kind, part)
    elif isinstance(kind, types.Float):
        yield np.dtype(str(kind)).type(argument)
    elif isinstance(kind, (types.Integer, types.CPointer)):
        yield int(argument)
    else:
        raise TypeError(f"kernels take numbers, pointers and tuples, not {kind}")


@cache
def _module(kernel, target):
    """Return the parsed PTX of a compiled kernel, which is kept alive by the cache."""
    return Module(kernel._codelibrary.get_asm_str(cc=target))


@contextlib.contextmanager
def emulated(target=SM90, memory_size=1 << 26):
    """Put an emulated device in place of the driver; yield it."""
    from qnumba.gpu import driver, operations

    device = Device(target, memory_size)

    def run_kernel(kernel, arguments, grid, block, stream=0, shared=0):
        (grid, *more), (block, *others) = grid, block
        assert set(more) | set(others) <= {1}
        pairs = zip(kernel.argument_types, arguments, strict=True)
        flat = [leaf for kind, argument in pairs for leaf in leaves(kind, argument)]
        run = launch(_module(kernel, target), grid, block, flat, device.memory, shared)
        device.runs.append(run)
        device.launches.append((kernel.py_func.__qualname__.partition(".")[0], grid, block, stream))

    fake = plain.SimpleNamespace(compute_capability=target[:2], id=0)
    patches = [
        mock.patch.object(dispatcher, "get_current_device", lambda: fake),
        mock.patch.object(dispatcher._Kernel, "launch", run_kernel),
        mock.patch.object(dispatcher._Kernel, "bind", lambda _: None),
        mock.patch.object(codegen.CUDACodeLibrary, "_ensure_cc", lambda _, cc: cc or target),
        mock.patch.object(dispatcher.driver, "_to_core_stream", lambda stream: stream),
        *(mock.patch.object(driver, name, getattr(device, name)) for name in DRIVER_NAMES),
    ]
    operations.forget_tables()
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield device
    operations.forget_tables()
