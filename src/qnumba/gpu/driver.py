"""The one place that talks to the CUDA driver: devices, streams, memory, launches.

Tests put an emulated device here, so nothing else in the package calls the driver.
"""

from __future__ import annotations

import contextlib
import threading

import numpy as np
from numba import config, cuda

_LEGACY_STREAM, _THREAD_STREAM = 1, 2


def current_device():
    """Return the number of the current device."""
    return cuda.get_current_device().id


def capability():
    """Return the compute capability of the current device, such as (9, 0)."""
    return cuda.get_current_device().compute_capability


def multiprocessors():
    """Return how many multiprocessors the current device has."""
    return cuda.get_current_device().MULTIPROCESSOR_COUNT


def entered(device):
    """Return a context in which a device is the current one."""
    return contextlib.nullcontext() if device == current_device() else cuda.gpus[device]


def device_of(pointer):
    """Return the number of the device that holds an address."""
    from cuda.bindings import driver  # noqa: PLC0415 - loads the driver library

    wanted = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    error, device = driver.cuPointerGetAttribute(wanted, pointer)
    if error != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"{pointer:#x} is no address of a CUDA device: {error.name}")
    return int(device)


def stream_of(handle):
    """Return the stream of a handle: 0 and 1 are the default stream, 2 that of the thread."""
    if handle in (None, 0, _LEGACY_STREAM):
        return cuda.default_stream()
    if handle == _THREAD_STREAM:
        return cuda.per_thread_default_stream()
    return cuda.external_stream(handle)


def wait_for(stream, other):
    """Let a stream wait for what another one has queued, without waiting here."""
    event = cuda.event(timing=False)
    event.record(stream_of(other))
    event.wait(stream_of(stream))


def allocate(shape, dtype, handle):
    """Return a new device array."""
    return cuda.device_array(shape, dtype, stream=stream_of(handle))


def read(pointer, shape, dtype, handle):
    """Return a copy of device memory, as soon as the stream is done."""
    interface = {
        "shape": shape,
        "typestr": np.dtype(dtype).str,
        "data": (pointer, False),
        "strides": None,
        "version": 3,
    }
    stream = stream_of(handle)
    view = cuda.from_cuda_array_interface(interface, sync=False)
    host = np.empty(shape, dtype)
    view.copy_to_host(host, stream=stream)
    stream.synchronize()
    return host


def copy(pointer, array, handle):
    """Copy a host array to device memory, and wait: the host array may go away."""
    interface = {
        "shape": (array.nbytes,),
        "typestr": "|u1",
        "data": (pointer, False),
        "strides": None,
        "version": 3,
    }
    stream = stream_of(handle)
    to = cuda.from_cuda_array_interface(interface, sync=False)
    to.copy_to_device(np.ascontiguousarray(array).reshape(-1).view(np.uint8), stream=stream)
    stream.synchronize()


def write(array, handle):
    """Return a device array with a copy of a host array."""
    stream = stream_of(handle)
    copy = cuda.to_device(np.ascontiguousarray(array), stream=stream)
    stream.synchronize()  # the host array may go away
    return copy


_kernels = {}
_quiet = threading.Lock()


def launch(function, signature, grid, block, handle, arguments):
    """Queue a kernel; the first time, compile it for the one signature it has."""
    key = (function, signature, capability())
    if key not in _kernels:
        _kernels[key] = cuda.jit(signature)(function)
    _configured(_kernels[key], grid, block, stream_of(handle))(*arguments)


def _configured(kernel, *launch):
    """Return a kernel with its launch, without the warning that a small array needs few threads."""
    with _quiet:
        held = config.CUDA_LOW_OCCUPANCY_WARNINGS
        config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
        try:
            return kernel[launch]
        finally:
            config.CUDA_LOW_OCCUPANCY_WARNINGS = held


def compiled_kernels():
    """Return the kernels that were compiled in this process."""
    return list(_kernels.values())


def forget_kernels():
    """Drop the compiled kernels: each will be compiled again when it is launched."""
    _kernels.clear()
