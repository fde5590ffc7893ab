"""torchao and bitsandbytes, which compute with torch."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from qnumba.bench.peers.job import Expression, Format, Peer, both, named
from qnumba.bench.peers.torch import expressed, load, tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NVFP4_MAX = 448.0 * 6.0
NVFP4_BLOCK = 16
MX_BLOCK = 32
NF4_BLOCK = 64


def _int8(block: tuple[int, int]) -> Callable[[Any, NDArray[Any]], Expression]:
    """Return symmetric integers with a scale for every block of rows and columns."""

    def make(torch: Any, _: NDArray[Any]) -> Expression:
        parts = import_module("torchao.quantization.quant_primitives")

        def encode(a: Any) -> tuple[Any, ...]:
            symmetric = parts.MappingType.SYMMETRIC
            scale, zero = parts.choose_qparams_affine(a, symmetric, block, torch.int8)
            return parts.quantize_affine(a, block, scale, zero, torch.int8), scale, zero

        def decode(codes: Any, scale: Any, zero: Any) -> Any:
            return parts.dequantize_affine(codes, block, scale, zero, torch.int8)

        return Expression(encode, decode)

    return make


def _mx(dtype: str) -> Callable[[NDArray[Any], int], Format]:
    """Return an MX format; torch does not compile these for processors."""

    def prepare(x: NDArray[Any], threads: int) -> Format:
        torch, parts = load(threads), import_module("torchao.prototype.mx_formats.mx_tensor")
        element = getattr(torch, dtype)

        def decode(made: tuple[Any, Any]) -> Any:
            scales, codes = made
            return parts.to_dtype(codes, scales, element, MX_BLOCK, torch.float32)

        return Format(partial(parts.to_mx, tensor(x), element, MX_BLOCK), decode)

    return prepare


def _nvfp4(torch: Any, x: NDArray[Any]) -> Expression:
    nvfp4 = import_module("torchao.prototype.mx_formats.nvfp4_tensor")
    kernels = import_module("torchao.prototype.mx_formats.kernels")

    def encode(a: Any) -> tuple[Any, ...]:
        scale = a.abs().max() / NVFP4_MAX
        scales, codes = nvfp4.nvfp4_quantize(a, NVFP4_BLOCK, scale)
        return codes, scales, scale

    def decode(codes: Any, scales: Any, scale: Any) -> Any:
        numbers = kernels.f4_unpacked_to_f32(kernels.unpack_uint4(codes)).view(-1, NVFP4_BLOCK)
        return (numbers * (scales.to(torch.float32).view(-1, 1) * scale)).view(x.shape)

    return Expression(encode, decode)


def _nf4(x: NDArray[Any], threads: int) -> Format:
    load(threads)
    functional = import_module("bitsandbytes.functional")
    encode = partial(functional.quantize_4bit, tensor(x), blocksize=NF4_BLOCK, quant_type="nf4")
    return Format(encode, lambda made: functional.dequantize_4bit(*made))


PEERS = (
    Peer(
        "torchao",
        "torchao",
        "openmp",
        {
            **named("block32_int8", expressed(_int8((1, 32)))),
            "rect32": expressed(_int8((32, 32)))[0],
            **named("mxfp8", both(_mx("float8_e4m3fn"))),
            **named("mxfp4", both(_mx("float4_e2m1fn_x2"))),
            **named("nvfp4", expressed(_nvfp4)),
        },
    ),
    Peer("bitsandbytes", "bitsandbytes", "openmp", named("nf4", both(_nf4))),
)
