"""What other libraries offer for the same work on a GPU: calls for ``benchmarks.gpu`` to time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Peer(NamedTuple):
    """A title, and what makes a call on an array of a shape and says the bytes that it moves."""

    title: str
    made: Callable


def _tensor(shape, dtype="float32"):
    import torch

    return torch.randn(shape, device="cuda", dtype=getattr(torch, dtype))


def torch_copy(shape):
    """Copy, in torch: the yardstick."""
    x = _tensor(shape)
    to = x.clone()
    return lambda: to.copy_(x), 8 * x.numel()


def torch_per_tensor(shape):
    """Quantize to int8 with given parameters."""
    import torch

    x = _tensor(shape)
    return lambda: torch.quantize_per_tensor(x, 0.02, 3, torch.qint8), 5 * x.numel()


def torch_range(shape):
    """Find both ends of the range."""
    import torch

    x = _tensor(shape)
    return lambda: torch.aminmax(x), 4 * x.numel()


def torch_cast(shape):
    """Cast to E4M3, without a scale."""
    import torch

    x = _tensor(shape)
    return lambda: x.to(torch.float8_e4m3fn), 5 * x.numel()


def torch_eager_int4(shape):
    """Quantize blocks of 32 to int4 in as many passes as there are operations."""
    x = _tensor(shape, "bfloat16")
    return lambda: _int4_of(x), int(2.5625 * x.numel())


def torch_compiled_int4(shape):
    """Compile the same into fused kernels."""
    import torch

    x = _tensor(shape, "bfloat16")
    compiled = torch.compile(_int4_of)
    return lambda: compiled(x), int(2.5625 * x.numel())


def _int4_of(x):
    import torch

    y = x.float().view(-1, 32)
    scale = (y.abs().amax(1, keepdim=True) / 7).half()
    codes = torch.round(y / scale.float()).clamp(-7, 7).to(torch.int32) & 15
    pairs = codes.view(-1, 2)
    return (pairs[:, 0] | pairs[:, 1] << 4).to(torch.uint8), scale


def torchao_mxfp8(shape):
    """Quantize to MXFP8."""
    import torch
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    x = _tensor(shape, "bfloat16")
    return lambda: to_mx(x, torch.float8_e4m3fn, 32), int((3 + 1 / 32) * x.numel())


def torchao_nvfp4(shape):
    """Quantize to NVFP4, with block scales alone."""
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize

    x = _tensor(shape, "bfloat16")
    return lambda: nvfp4_quantize(x), int((2.5 + 1 / 16) * x.numel())


def cupy_affine(shape):
    """Quantize to int8 with given parameters, by a kernel written for it."""
    import cupy

    x = cupy.random.standard_normal(shape, dtype=cupy.float32)
    to = cupy.empty(shape, cupy.int8)
    kernel = cupy.ElementwiseKernel(
        "float32 x, float32 inverse",
        "int8 code",
        "code = (signed char)fminf(fmaxf(rintf(x * inverse) + 3, -128.f), 127.f)",
        "quantize_affine",
    )
    return lambda: kernel(x, cupy.float32(50), to), 5 * math.prod(shape)


PEERS = [
    Peer("torch copy", torch_copy),
    Peer("torch.quantize_per_tensor int8 of float32", torch_per_tensor),
    Peer("torch.aminmax of float32", torch_range),
    Peer("torch .to(float8_e4m3fn) of float32", torch_cast),
    Peer("torch int4 blocks of bfloat16", torch_eager_int4),
    Peer("torch.compile int4 blocks of bfloat16", torch_compiled_int4),
    Peer("torchao MXFP8 of bfloat16", torchao_mxfp8),
    Peer("torchao NVFP4 of bfloat16", torchao_nvfp4),
    Peer("CuPy int8 of float32", cupy_affine),
]
