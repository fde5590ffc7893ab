"""pi-quant, by its C functions: its Python methods take microseconds to call them."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.bench.peers.job import UINT4, UINT8, Affine, Job, Peer, affine, nibbles

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEAREST = 0  # rounding
SET = 0  # write, do not add
KINDS = {UINT4: "UINT4", UINT8: "UINT8"}


class _Library:
    """The functions with a context of so many threads, and the names of dtypes."""

    def __init__(self, threads: int) -> None:
        piquant = import_module("piquant")
        self.functions, self.new, self.buffer = piquant.C, piquant.ffi.new, piquant.ffi.from_buffer
        self.context = self.functions.piquant_context_create(threads)
        self.types = {kind.name: kind.value for kind in piquant.DataType}

    def quantize(self, x: NDArray[Any], limits: tuple[int, int], out: NDArray[Any]) -> Any:
        """Return the function of a scale, a zero point and a rounding that encodes."""
        return partial(
            self.functions.piquant_quantize,
            self.context,
            self.buffer(x),
            self.types["F32"],
            self.buffer(out),
            self.types[KINDS[limits]],
            x.size,
        )

    def measure(self, x: NDArray[Any]) -> tuple[Any, Any, Any]:
        """Return the call that finds parameters, and where it puts the scale and the zero point."""
        scale, zero = self.new("float *"), self.new("int64_t *")
        floats = self.buffer("float[]", x)
        find = self.functions.piquant_compute_quant_params_float32
        call = partial(find, self.context, floats, x.size, self.types["UINT8"], scale, zero)
        return call, scale, zero


def _uint8(x: NDArray[Any], threads: int) -> Job:
    params, out = affine(x, UINT8), np.empty(x.shape, np.uint8)
    encode = _Library(threads).quantize(x, UINT8, out)
    return Job(
        partial(encode, params.scale, params.zero, NEAREST),
        lambda: params.numbers(out),
    )


def _uint4(x: NDArray[Any], threads: int) -> Job:
    params, out = affine(x, UINT4), np.empty(x.size // 2, np.uint8)
    encode = _Library(threads).quantize(x, UINT4, out)
    return Job(
        partial(encode, params.scale, params.zero, NEAREST),
        lambda: params.numbers(nibbles(out, x.shape)),
    )


def _dynamic(x: NDArray[Any], threads: int) -> Job:
    library, out = _Library(threads), np.empty(x.shape, np.uint8)
    measure, scale, zero = library.measure(x)
    encode = library.quantize(x, UINT8, out)

    def call() -> None:
        measure()
        encode(scale[0], zero[0], NEAREST)

    return Job(call, lambda: Affine(scale[0], zero[0]).numbers(out))


def _minmax(x: NDArray[Any], threads: int) -> Job:
    """Find parameters, which pi-quant gives in place of the extremes: two numbers from two."""
    call, scale, zero = _Library(threads).measure(x)
    return Job(call, lambda: Affine(scale[0], zero[0]).numbers(np.array(UINT8)))


def _to_float(x: NDArray[Any], threads: int) -> Job:
    library, params, out = _Library(threads), affine(x, UINT8), np.empty_like(x)
    call = partial(
        library.functions.piquant_dequantize,
        library.context,
        library.buffer(params.codes(x, UINT8)),
        library.types["UINT8"],
        library.buffer(out),
        library.types["F32"],
        x.size,
        params.scale,
        params.zero,
        SET,
    )
    return Job(call, lambda: out)


PEERS = (
    Peer(
        "pi-quant",
        "piquant",
        "plain",
        {
            "affine_uint8": _uint8,
            "affine_uint4": _uint4,
            "affine_to_float": _to_float,
            "affine_dynamic": _dynamic,
            "minmax": _minmax,
        },
    ),
)
