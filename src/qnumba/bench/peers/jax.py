"""JAX: expressions that XLA compiles, which write into what the call before returned."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.bench.peers.job import INT8, UINT4, UINT8, Expression, Job, Peer, affine, named

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from qnumba.bench.peers.job import Prepare

BLOCK = 32


def _jobs(make: Callable[[Any, NDArray[Any]], Expression]) -> tuple[Prepare, Prepare]:
    """Return the jobs that encode and decode."""

    def encode(x: NDArray[Any], _: int) -> Job:
        form = make(import_module("jax.numpy"), x)
        call, result = _again(form.encode, x)
        return Job(call, lambda: np.asarray(form.decode(*result())).reshape(x.shape))

    def decode(x: NDArray[Any], _: int) -> Job:
        form = make(import_module("jax.numpy"), x)
        call, result = _again(form.decode, *form.encode(import_module("jax").device_put(x)))
        return Job(call, lambda: np.asarray(result()).reshape(x.shape))

    return encode, decode


def _again(function: Callable[..., Any], *given: Any) -> tuple[Callable[[], None], Any]:
    """Return the call of a function, whose result goes where the last one was, and that result."""
    jax = import_module("jax")
    arrays = [jax.device_put(array) for array in given]
    step = jax.jit(lambda _, arrays: function(*arrays), donate_argnums=0, keep_unused=True)
    last = jax.jit(lambda arrays: function(*arrays))(arrays)

    def call() -> None:
        nonlocal last
        last = jax.block_until_ready(step(last, arrays))

    return call, lambda: last


def _affine(limits: tuple[int, int]) -> Callable[[Any, NDArray[Any]], Expression]:
    def make(jnp: Any, x: NDArray[Any]) -> Expression:
        (scale, zero), dtype = affine(x, limits), jnp.int8 if limits == INT8 else jnp.uint8
        return Expression(
            lambda a: (jnp.clip(jnp.round(a * (1 / scale)) + zero, *limits).astype(dtype),),
            lambda codes: (codes.astype(jnp.float32) - zero) * scale,
        )

    return make


def _uint4(jnp: Any, x: NDArray[Any]) -> Expression:
    wide = _affine(UINT4)(jnp, x)

    def encode(a: Any) -> Any:
        pairs = wide.encode(a)[0].reshape(-1, 2)
        return (pairs[:, 0] | pairs[:, 1] << 4,)

    return Expression(encode, lambda q: wide.decode(jnp.stack([q & 15, q >> 4], -1)))


def _dynamic(jnp: Any, _: NDArray[Any]) -> Expression:
    def encode(a: Any) -> Any:
        low, high = jnp.minimum(a.min(), 0), jnp.maximum(a.max(), 0)
        scale = (high - low) / UINT8[1]
        zero = jnp.round(-low / scale)
        codes = jnp.clip(jnp.round(a * (1 / scale)) + zero, *UINT8)
        return codes.astype(jnp.uint8), scale, zero

    return Expression(encode, lambda q, scale, zero: (q.astype(jnp.float32) - zero) * scale)


def _int8_blocks(jnp: Any, _: NDArray[Any]) -> Expression:
    def encode(a: Any) -> Any:
        blocks = a.reshape(-1, BLOCK)
        scales = jnp.abs(blocks).max(1, keepdims=True) / 127
        return jnp.round(blocks / scales).astype(jnp.int8), scales.astype(jnp.float16)

    return Expression(encode, lambda q, scales: q.astype(jnp.float32) * scales.astype(jnp.float32))


def _int4_blocks(jnp: Any, _: NDArray[Any]) -> Expression:
    half = BLOCK // 2

    def encode(a: Any) -> Any:
        blocks = a.reshape(-1, BLOCK)
        scales = jnp.abs(blocks).max(1, keepdims=True) / 7
        codes = (jnp.round(blocks / scales) + 8).astype(jnp.uint8)
        return codes[:, :half] | codes[:, half:] << 4, scales.astype(jnp.float16)

    def decode(q: Any, scales: Any) -> Any:
        codes = jnp.concatenate([q & 15, q >> 4], -1).astype(jnp.float32) - 8
        return codes * scales.astype(jnp.float32)

    return Expression(encode, decode)


def _fp8(jnp: Any, _: NDArray[Any]) -> Expression:
    return Expression(
        lambda a: (a.astype(jnp.float8_e4m3fn),), lambda codes: codes.astype(jnp.float32)
    )


_UINT8, _UINT8_TO_FLOAT = _jobs(_affine(UINT8))

PEERS = (
    Peer(
        "JAX",
        "jax",
        "jax",
        {
            "affine_uint8": _UINT8,
            "affine_to_float": _UINT8_TO_FLOAT,
            "affine_int8": _jobs(_affine(INT8))[0],
            "affine_uint4": _jobs(_uint4)[0],
            "affine_dynamic": _jobs(_dynamic)[0],
            **named("block32_int8", _jobs(_int8_blocks)),
            **named("block32_int4", _jobs(_int4_blocks)),
            **named("fp8", _jobs(_fp8)),
        },
    ),
)
