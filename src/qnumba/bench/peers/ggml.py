"""ggml, by its C functions, and gguf, which does the same with NumPy."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.bench.peers.job import Format, Job, Peer, both, named

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from qnumba.bench.peers.job import Prepare

TYPES = {"q4_0": 2, "q8_0": 8, "mxfp4": 39, "nvfp4": 40}  # of enum ggml_type
PACKAGE = "libggml"
FOLDERS = {PACKAGE: "lib64", "llama_cpp": "lib"}  # where packages have the shared libraries
FEWEST = 2**16  # values that a further thread is worth
FLOAT = 4  # bytes

Convert = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int64)  # from, to, how many values


class _Traits(ctypes.Structure):
    """The struct ggml_type_traits."""

    _fields_ = (
        ("name", c_char_p),
        ("block", c_int64),
        ("interleaved", c_int64),
        ("size", c_size_t),
        ("quantized", c_bool),
        ("to_float", c_void_p),
        ("from_float_ref", c_void_p),
    )


class _ProcessorTraits(ctypes.Structure):
    """The struct ggml_type_traits_cpu."""

    _fields_ = (
        ("from_float", c_void_p),
        ("vec_dot", c_void_p),
        ("vec_dot_type", c_int),
        ("rows", c_int64),
    )


class Library:
    """The shared libraries of a folder."""

    def __init__(self, folder: Path) -> None:
        self.base, self.cpu = (
            ctypes.CDLL(str(folder / f"libggml-{part}.so"), mode=ctypes.RTLD_GLOBAL)
            for part in ("base", "cpu")
        )
        self.cpu.ggml_cpu_init()

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """Return a C function with its types."""
        found = getattr(self.base if hasattr(self.base, name) else self.cpu, name)
        found.restype, found.argtypes = result, arguments
        return found

    def traits(self, kind: str) -> Any:
        """Return the block of a type, its bytes and its functions, by name."""
        get = self.function("ggml_get_type_traits", ctypes.POINTER(_Traits), c_int)
        return get(TYPES[kind]).contents

    def encoder(self, kind: str) -> Any:
        """Return the fastest function that encodes."""
        pointer = ctypes.POINTER(_ProcessorTraits)
        get = self.function("ggml_get_type_traits_cpu", pointer, c_int)
        return Convert(get(TYPES[kind]).contents.from_float)

    def codes(self, kind: str, size: int) -> NDArray[np.uint8]:
        """Return memory for the blocks of so many values."""
        traits = self.traits(kind)
        return np.zeros(size // traits.block * traits.size, np.uint8)


@cache
def library(package: str) -> Library:
    """Return ggml as a package has it. A process may load that of one package only."""
    spec = find_spec(package)
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    return Library(folder / FOLDERS[package])


def _in_parts(
    function: Any, source: NDArray[Any], target: NDArray[Any], step: int, threads: int
) -> Callable[[], Any]:
    """Return the call of a function that converts, by as many threads as are worth it."""
    size = max(source.nbytes, target.nbytes) // FLOAT
    count = max(1, min(threads, size // FEWEST))
    edges = [size * part // count // step * step for part in range(count)] + [size]
    parts = [
        (_from(source, start / size), _from(target, start / size), c_int64(end - start))
        for start, end in pairwise(edges)
    ]
    if count == 1:
        return partial(function, *parts[0])
    pool = ThreadPoolExecutor(count - 1)

    def call() -> None:
        others = [pool.submit(function, *part) for part in parts[1:]]
        function(*parts[0])
        for other in others:
            other.result()

    return call


def _from(array: NDArray[Any], share: float) -> Any:
    """Return the address after a share of an array, which lives as long as the address."""
    data = array.reshape(-1).view(np.uint8)
    return data[round(data.size * share) :].ctypes.data_as(c_void_p)


def _blocks(kind: str) -> tuple[Prepare, Prepare]:
    """Return the jobs that encode and decode in a type of ggml."""

    def calls(x: NDArray[Any], threads: int) -> tuple[Any, Any, NDArray[Any]]:
        lib, back = library(PACKAGE), np.empty_like(x)
        traits, codes = lib.traits(kind), lib.codes(kind, x.size)
        encode = _in_parts(lib.encoder(kind), x, codes, traits.block, threads)
        decode = _in_parts(Convert(traits.to_float), codes, back, traits.block, threads)
        return encode, decode, back

    def encode(x: NDArray[Any], threads: int) -> Job:
        call, decode, back = calls(x, threads)

        def numbers() -> NDArray[Any]:
            decode()
            return back

        return Job(call, numbers)

    def decode(x: NDArray[Any], threads: int) -> Job:
        encode, call, back = calls(x, threads)
        encode()
        return Job(call, lambda: back)

    return encode, decode


def _gguf(kind: str) -> Callable[[NDArray[Any], int], Format]:
    """Return a type of ggml by NumPy."""

    def prepare(x: NDArray[Any], _: int) -> Format:
        gguf = import_module("gguf")
        number = gguf.GGMLQuantizationType(TYPES[kind])
        return Format(
            partial(gguf.quants.quantize, x, number),
            partial(gguf.quants.dequantize, qtype=number),
        )

    return prepare


PEERS = (
    Peer(
        "ggml",
        PACKAGE,
        "plain",
        {
            **named("block32_int8", _blocks("q8_0")),
            **named("block32_int4", _blocks("q4_0")),
            **named("mxfp4", _blocks("mxfp4")),
            **named("nvfp4", _blocks("nvfp4")),
        },
    ),
    Peer(
        "gguf",
        "gguf",
        "plain",
        {
            **named("block32_int8", both(_gguf("q8_0"))),
            **named("block32_int4", both(_gguf("q4_0"))),
            **named("mxfp4", both(_gguf("mxfp4"))),
        },
    ),
)
