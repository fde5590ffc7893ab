"""An object on the emulated device that speaks DLPack and nothing else, as C structures."""

from __future__ import annotations

import ctypes

import numpy as np

CUDA = 2  # kDLCUDA
KINDS = {"i": 0, "u": 1, "f": 2, "bfloat16": 4}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("axes", ctypes.c_int32),
        ("kind", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Producer:
    """A view of an emulated array; ``strides`` count elements, None is C-contiguous."""

    def __init__(self, array, strides=None, name=None):
        self.array, self.streams = array, []
        axes = len(array.shape)
        self._shape = (ctypes.c_int64 * axes)(*array.shape)
        self._strides = None if strides is None else (ctypes.c_int64 * axes)(*strides)
        dtype = np.dtype(array.dtype)
        kind = KINDS[name or dtype.kind]
        self._managed = _Managed(
            _Tensor(
                *(array.pointer, CUDA, 0, axes, kind, 8 * dtype.itemsize, 1),
                *(self._shape, self._strides, 0),
            )
        )

    def __dlpack_device__(self):
        return CUDA, 0

    def __dlpack__(self, *, stream=None, **_):
        self.streams.append(stream)
        return _capsule(ctypes.addressof(self._managed), b"dltensor", None)
