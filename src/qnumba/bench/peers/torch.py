"""torch: its own operations, and expressions that it compiles."""

from __future__ import annotations

import warnings
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.bench.peers.job import (
    INT8,
    UINT4,
    UINT8,
    Expression,
    Format,
    Job,
    Peer,
    affine,
    both,
    named,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from qnumba.bench.peers.job import Prepare

BLOCK = 32
E4M3_MAX, E4M3_EXPONENT = 448, 8  # the largest number, and its exponent
MANTISSA_BITS, LAST_EXPONENT = 23, 254  # of float32, whose exponents stand for powers of two


def load(threads: int) -> Any:
    """Return torch, with so many threads."""
    torch = import_module("torch")
    torch.set_num_threads(threads)
    return torch


def tensor(x: NDArray[Any]) -> Any:
    """Return an array as a tensor, also one that must not be written to: nothing here does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return import_module("torch").from_numpy(x)


def compiled(step: Callable[..., Any]) -> Callable[..., Any]:
    """Compile for one shape; what was compiled before from the same lines is forgotten."""
    torch = import_module("torch")
    torch.compiler.reset()
    made: Callable[..., Any] = torch.compile(step, dynamic=False)
    return made


# --- torch's own operations


def _affine(limits: tuple[int, int]) -> Callable[[NDArray[Any], int], Format]:
    def prepare(x: NDArray[Any], threads: int) -> Format:
        torch, (scale, zero) = load(threads), affine(x, limits)
        dtype = torch.qint8 if limits == INT8 else torch.quint8
        encode = partial(torch.quantize_per_tensor, tensor(x), scale, zero, dtype)
        return Format(encode, torch.dequantize)

    return prepare


def _dynamic(x: NDArray[Any], threads: int) -> Format:
    torch = load(threads)
    encode = partial(torch.quantize_per_tensor_dynamic, tensor(x), torch.quint8, False)  # noqa: FBT003
    return Format(encode, torch.dequantize)


def _rows(word: str) -> Callable[[NDArray[Any], int], Format]:
    """Return a format of rows for tables of embeddings: here every block is a row."""

    def prepare(x: NDArray[Any], threads: int) -> Format:
        operations = load(threads).ops.quantized
        encode = getattr(operations, f"embedding_bag_{word}_prepack")
        decode = getattr(operations, f"embedding_bag_{word}_unpack")
        return Format(partial(encode, tensor(x).view(-1, BLOCK)), decode)

    return prepare


def _minmax(x: NDArray[Any], threads: int) -> Job:
    call = partial(load(threads).aminmax, tensor(x))
    return Job(call, lambda: np.array(call(), np.float32))


def _absmax(x: NDArray[Any], threads: int) -> Job:
    """Find the extremes first: the infinity norm is slower by far."""
    torch, source = load(threads), tensor(x)

    def call() -> Any:
        low, high = torch.aminmax(source)
        return torch.maximum(-low, high)

    return Job(call, lambda: np.array([call()], np.float32))


def _fp8(x: NDArray[Any], threads: int) -> Job:
    torch = load(threads)
    codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
    return Job(partial(codes.copy_, tensor(x)), lambda: np.asarray(codes.to(torch.float32)))


def _fp8_to_float(x: NDArray[Any], threads: int) -> Job:
    torch = load(threads)
    out = torch.empty(x.shape)
    call = partial(out.copy_, tensor(x).to(torch.float8_e4m3fn))
    return Job(call, lambda: np.asarray(out))


# --- expressions


def expressed(make: Callable[[Any, NDArray[Any]], Expression]) -> tuple[Prepare, Prepare]:
    """Return the jobs that encode and decode by compiled loops, into tensors used again."""

    def encode(x: NDArray[Any], threads: int) -> Job:
        form, source = make(load(threads), x), tensor(x)
        codes = form.encode(source)

        def step(a: Any, *targets: Any) -> None:
            for target, found in zip(targets, form.encode(a), strict=True):
                target.copy_(found)

        call = partial(compiled(step), source, *codes)
        return Job(call, lambda: np.asarray(form.decode(*codes)).reshape(x.shape))

    def decode(x: NDArray[Any], threads: int) -> Job:
        torch = load(threads)
        form, out = make(torch, x), torch.empty(x.shape)

        def step(target: Any, *codes: Any) -> None:
            target.copy_(form.decode(*codes).view(target.shape))

        call = partial(compiled(step), out, *form.encode(tensor(x)))
        return Job(call, lambda: np.asarray(out))

    return encode, decode


def _affine_expression(limits: tuple[int, int]) -> Callable[[Any, NDArray[Any]], Expression]:
    def make(torch: Any, x: NDArray[Any]) -> Expression:
        (scale, zero), dtype = affine(x, limits), torch.int8 if limits == INT8 else torch.uint8
        return Expression(
            lambda a: (torch.clamp(torch.round(a * (1 / scale)) + zero, *limits).to(dtype),),
            lambda codes: (codes.to(torch.float32) - zero) * scale,
        )

    return make


def _uint4_expression(torch: Any, x: NDArray[Any]) -> Expression:
    wide = _affine_expression(UINT4)(torch, x)

    def encode(a: Any) -> tuple[Any, ...]:
        pairs = wide.encode(a)[0].view(-1, 2)
        return (pairs[:, 0] | (pairs[:, 1] << 4),)

    return Expression(encode, lambda q: wide.decode(torch.stack([q & 15, q >> 4], -1)))


def _dynamic_expression(torch: Any, _: NDArray[Any]) -> Expression:
    def encode(a: Any) -> tuple[Any, ...]:
        low, high = torch.aminmax(a)
        low, high = torch.clamp(low, max=0), torch.clamp(high, min=0)
        scale = (high - low) / UINT8[1]
        zero = torch.round(-low / scale)
        codes = torch.clamp(torch.round(a * (1 / scale)) + zero, *UINT8)
        return codes.to(torch.uint8), scale, zero

    return Expression(encode, lambda q, scale, zero: (q.to(torch.float32) - zero) * scale)


def _int8_expression(torch: Any, _: NDArray[Any]) -> Expression:
    def encode(a: Any) -> tuple[Any, ...]:
        blocks = a.view(-1, BLOCK)
        scales = blocks.abs().amax(-1, keepdim=True) / 127
        return torch.round(blocks / scales).to(torch.int8), scales.to(torch.float16)

    return Expression(encode, lambda q, scales: q.to(torch.float32) * scales.to(torch.float32))


def _int4_expression(torch: Any, _: NDArray[Any]) -> Expression:
    def encode(a: Any) -> tuple[Any, ...]:
        blocks = a.view(-1, BLOCK)
        scales = blocks.abs().amax(-1, keepdim=True) / 7
        low, high = (torch.round(blocks / scales) + 8).to(torch.uint8).chunk(2, -1)
        return low | (high << 4), scales.to(torch.float16)

    def decode(q: Any, scales: Any) -> Any:
        codes = torch.cat([q & 15, q >> 4], -1).to(torch.float32) - 8
        return codes * scales.to(torch.float32)

    return Expression(encode, decode)


def _mxfp8_expression(torch: Any, _: NDArray[Any]) -> Expression:
    def power(exponents: Any) -> Any:
        return (exponents.to(torch.int32) << MANTISSA_BITS).view(torch.float32)

    def encode(a: Any) -> tuple[Any, ...]:
        blocks = a.view(-1, BLOCK)
        largest = blocks.abs().amax(-1, keepdim=True).view(torch.int32) >> MANTISSA_BITS
        exponents = torch.clamp(largest - E4M3_EXPONENT, 1, LAST_EXPONENT - 1)
        steps = torch.clamp(blocks * power(LAST_EXPONENT - exponents), -E4M3_MAX, E4M3_MAX)
        return steps.to(torch.float8_e4m3fn), exponents.to(torch.uint8)

    return Expression(encode, lambda q, exponents: q.to(torch.float32) * power(exponents))


def _fp8_expression(torch: Any, _: NDArray[Any]) -> Expression:
    return Expression(lambda a: (a.to(torch.float8_e4m3fn),), lambda codes: codes.to(torch.float32))


_UINT8, _UINT8_TO_FLOAT = both(_affine(UINT8))
_UINT8_LOOP, _UINT8_TO_FLOAT_LOOP = expressed(_affine_expression(UINT8))

PEERS = (
    Peer(
        "torch",
        "torch",
        "openmp",
        {
            "affine_uint8": _UINT8,
            "affine_to_float": _UINT8_TO_FLOAT,
            "affine_int8": both(_affine(INT8))[0],
            "affine_dynamic": both(_dynamic)[0],
            "minmax": _minmax,
            "absmax": _absmax,
            "fp8": _fp8,
            "fp8_to_float": _fp8_to_float,
            **named("block32_int8", both(_rows("byte"))),
            **named("block32_int4", both(_rows("4bit"))),
        },
    ),
    Peer(
        "torch.compile",
        "torch",
        "openmp",
        {
            "affine_uint8": _UINT8_LOOP,
            "affine_to_float": _UINT8_TO_FLOAT_LOOP,
            "affine_int8": expressed(_affine_expression(INT8))[0],
            "affine_uint4": expressed(_uint4_expression)[0],
            "affine_dynamic": expressed(_dynamic_expression)[0],
            **named("block32_int8", expressed(_int8_expression)),
            **named("block32_int4", expressed(_int4_expression)),
            **named("mxfp8", expressed(_mxfp8_expression)),
            **named("fp8", expressed(_fp8_expression)),
        },
    ),
)
