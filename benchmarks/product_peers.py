"""Matrix products of other libraries, with the very codes and scales of an array of ours.

Each is imported by its own products only.
"""

from __future__ import annotations

import ctypes
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from functools import partial
from itertools import count, takewhile
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from qnumba.bench.peers import ggml
from qnumba.bench.peers.onnxruntime import Value, node
from qnumba.bench.peers.torch import load, tensor

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK, BYTE = 32, 8
INT4, INT8 = "Q4S block=32:F16", "Q8S block=32:F16"
INT8_ROWS = "Q8S block=4096"
BLOCKS = "Q8S block=32:F32"  # as other libraries quantize the vector
EXACT, BFLOAT, CODES = 1e-5, 1e-2, 3e-2  # relative error: float32, bfloat16, vectors of 7 bits


class Product(NamedTuple):
    """A product of a matrix of weights with one vector of float32.

    ``prepare`` takes the weights and the vector and returns the call to be timed and what returns
    its result afterwards. ``scheme`` is that of the weights; ``vector`` is what the library makes
    of the vector at every call, or None; ``bound`` the relative error that this may cause.
    """

    library: str
    package: str
    what: str
    scheme: str
    vector: str | None
    bound: float
    prepare: Callable


# --- onnxruntime


def _nbits(bits, level):
    """Return MatMulNBits; its ``accuracy_level`` 4 quantizes the vector to 8 bits."""

    def prepare(q, x):
        rows, columns = q.shape
        codes = (q.codes() + np.int16(1 << bits - 1)).astype(np.uint8)
        if bits < BYTE:
            codes = codes[:, ::2] | codes[:, 1::2] << 4
        inputs = {
            "x": Value(x[None]),
            "codes": Value(codes.reshape(rows, columns // BLOCK, -1), constant=True),
            "scales": Value(q.scales.reshape(-1), constant=True),
        }
        out = np.empty((1, rows), np.float32)
        how = {
            "K": columns, "N": rows, "bits": bits, "block_size": BLOCK, "accuracy_level": level
        }  # fmt: skip
        call = node("MatMulNBits", inputs, {"y": Value(out)}, 1, how, "com.microsoft")
        return call, lambda: out[0]

    return prepare


# --- torch


def _torch_int4(q, x):
    """Return the product in bfloat16, which is far faster than in float32."""
    torch = load(1)
    codes = tensor((q.codes() + 8).astype(np.int32))
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 2)
    scales = tensor(q.scales).T
    parameters = torch.stack([scales, torch.zeros_like(scales)], -1).contiguous().bfloat16()
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
    call = partial(multiply, tensor(x[None]).bfloat16(), packed, BLOCK, parameters)
    return call, lambda: call()[0].float().numpy()


def _torch_int8(q, x):
    """Return the product in bfloat16 with a scale for each row."""
    torch = load(1)
    scales = tensor(q.scales.reshape(-1)).bfloat16()
    multiply = torch.ops.aten._weight_int8pack_mm
    call = partial(multiply, tensor(x[None]).bfloat16(), tensor(q.codes()), scales)
    return call, lambda: call()[0].float().numpy()


def _torch_dynamic(q, x):
    """Return the product that quantizes the vector as a whole."""
    torch = load(1)
    torch.backends.quantized.engine = "fbgemm"
    rows = q.shape[0]
    weights = torch._make_per_channel_quantized_tensor(
        tensor(q.codes()),
        tensor(q.scales.astype(np.float64).reshape(-1)),
        torch.zeros(rows, dtype=torch.int64),
        0,
    )
    packed = torch.ops.quantized.linear_prepack(weights, None)
    multiply = torch.ops.quantized.linear_dynamic
    call = partial(multiply, tensor(x[None]), packed, reduce_range=True)
    return call, lambda: call().numpy()[0]


# --- ggml


class _Init(ctypes.Structure):
    """The struct ggml_init_params."""

    _fields_ = (("size", c_size_t), ("buffer", c_void_p), ("no_alloc", c_bool))


SIGNATURES = {
    "ggml_init": (c_void_p, _Init),
    "ggml_new_tensor_2d": (c_void_p, c_void_p, c_int, c_int64, c_int64),
    "ggml_mul_mat": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_new_graph": (c_void_p, c_void_p),
    "ggml_build_forward_expand": (None, c_void_p, c_void_p),
    "ggml_backend_cpu_buffer_type": (c_void_p,),
    "ggml_backend_alloc_ctx_tensors_from_buft": (c_void_p, c_void_p, c_void_p),
    "ggml_backend_tensor_set": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_tensor_get": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_cpu_init": (c_void_p,),
    "ggml_backend_cpu_set_n_threads": (None, c_void_p, c_int),
    "ggml_backend_graph_compute": (c_int, c_void_p, c_void_p),
    "ggml_backend_cpu_reg": (c_void_p,),
    "ggml_backend_reg_dev_get": (c_void_p, c_void_p, c_size_t),
    "ggml_backend_reg_get_proc_address": (c_void_p, c_void_p, c_char_p),
    "ggml_backend_buft_name": (c_char_p, c_void_p),
}
FLOAT32 = 0  # of enum ggml_type


def _functions(package):
    """Return ggml's functions under their names without what all begin with."""
    lib = ggml.library(package)
    found = {name: lib.function(name, *types) for name, types in SIGNATURES.items()}
    return SimpleNamespace(**{name.removeprefix("ggml_"): found[name] for name in found})


def _mul_mat(package, kind, *, repack):
    """Return the product of a graph, with blocks as they are or in the order of its kernels."""

    def prepare(q, x):
        lib = _functions(package)
        (rows, columns), memory = q.shape, lib.backend_cpu_buffer_type()
        held, used = (lib.init(_Init(2**20, no_alloc=True)) for _ in range(2))
        weights = lib.new_tensor_2d(held, ggml.TYPES[kind], columns, rows)
        vector = lib.new_tensor_2d(used, FLOAT32, columns, 1)
        result = lib.mul_mat(used, weights, vector)
        lib.backend_alloc_ctx_tensors_from_buft(held, _repacked(lib) if repack else memory)
        lib.backend_alloc_ctx_tensors_from_buft(used, memory)
        for target, array in ((weights, _blocks(q, kind)), (vector, x)):
            lib.backend_tensor_set(target, array.ctypes.data, 0, array.nbytes)
        graph, backend = lib.new_graph(used), lib.backend_cpu_init()
        lib.build_forward_expand(graph, result)
        lib.backend_cpu_set_n_threads(backend, 1)

        def found():
            out = np.empty(rows, np.float32)
            lib.backend_tensor_get(result, out.ctypes.data, 0, out.nbytes)
            return out

        return partial(lib.backend_graph_compute, backend, graph), found

    return prepare


def _blocks(q, kind):
    """Return codes and scales as ggml has them: a scale of float16, then the codes of a block."""
    codes = q.codes().reshape(-1, BLOCK)
    if kind == "q4_0":
        half = BLOCK // 2
        codes = codes[:, :half] + 8 | codes[:, half:] + 8 << 4
    scales = q.scales.astype(np.float16).reshape(-1, 1)
    return np.ascontiguousarray(np.hstack([scales.view(np.uint8), codes.view(np.uint8)]))


def _repacked(lib):
    """Return the kind of memory that puts blocks in the order of ggml's fastest kernels."""
    registry = lib.backend_cpu_reg()
    find = ctypes.CFUNCTYPE(ctypes.POINTER(c_void_p), c_void_p)(
        lib.backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    )
    kinds = find(lib.backend_reg_dev_get(registry, 0))
    for kind in takewhile(bool, (kinds[number] for number in count())):
        if b"REPACK" in lib.backend_buft_name(kind):
            return kind
    raise LookupError("this build of ggml has no other order of blocks")


PRODUCTS = [
    Product("onnxruntime", "onnxruntime", f"MatMulNBits {bits} bits, level {level}",
            scheme, BLOCKS if level else None, CODES if level else EXACT, _nbits(bits, level))
    for bits, scheme in ((4, INT4), (8, INT8)) for level in (0, 4)
] + [
    Product("torch", "torch", "int4pack, bfloat16", INT4, None, BFLOAT, _torch_int4),
    Product("torch", "torch", "int8pack, bfloat16", INT8_ROWS, None, BFLOAT, _torch_int8),
    Product("torch", "torch", "linear_dynamic", INT8_ROWS, "int8", CODES, _torch_dynamic),
] + [
    Product(library, package, f"{kind}{', repacked' if repack else ''}", scheme, BLOCKS, CODES,
            _mul_mat(package, kind, repack=repack))
    for library, package in (("ggml", "libggml"), ("llama.cpp", "llama_cpp"))
    for kind, scheme, repack in (
        ("q4_0", INT4, False), ("q4_0", INT4, True), ("q8_0", INT8, False)
    )
]  # fmt: skip
