"""MLX on the processor."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qnumba.bench.peers.job import Format, Peer, both, named

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def _load() -> Any:
    core = import_module("mlx.core")
    core.set_default_device(core.cpu)
    return core


def _format(**how: Any) -> Callable[[NDArray[Any], int], Format]:
    """Return a format of blocks; nothing is computed before it is evaluated."""

    def prepare(x: NDArray[Any], _: int) -> Format:
        core = _load()
        source = core.array(x)
        core.eval(source)

        def encode() -> Any:
            made = core.quantize(source, **how)
            core.eval(made)
            return made

        def decode(made: Any) -> Any:
            numbers = core.dequantize(*made, **how, dtype=core.float32)
            core.eval(numbers)
            return numbers

        return Format(encode, decode)

    return prepare


def _fp8(x: NDArray[Any], _: int) -> Format:
    core = _load()
    source = core.array(x)
    core.eval(source)

    def encode() -> Any:
        codes = core.to_fp8(source)
        core.eval(codes)
        return codes

    def decode(codes: Any) -> Any:
        numbers = core.from_fp8(codes, core.float32)
        core.eval(numbers)
        return numbers

    return Format(encode, decode)


PEERS = (
    Peer(
        "MLX",
        "mlx",
        "mlx",
        {
            **named("block32_int8", both(_format(group_size=32, bits=8))),
            **named("block32_int4", both(_format(group_size=32, bits=4))),
            **named("mxfp8", both(_format(mode="mxfp8"))),
            **named("mxfp4", both(_format(mode="mxfp4"))),
            **named("nvfp4", both(_format(mode="nvfp4"))),
            **named("fp8", both(_fp8)),
        },
    ),
)
