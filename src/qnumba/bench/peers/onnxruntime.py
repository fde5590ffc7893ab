"""onnxruntime: models of one node, with inputs and outputs in arrays of ours.

Models are written here, byte by byte: that takes less than the package that writes all of ONNX.
Field numbers are those of onnx.proto: ModelProto, GraphProto, NodeProto, TensorProto.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.bench.peers.job import INT8, UINT4, UINT8, Affine, Job, Peer, affine, nibbles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

TYPES = {"float32": 1, "uint8": 2, "int8": 3}
E4M3, PACKED_UINT4, PACKED_INT4 = 17, 21, 22
IR_VERSION, OPSET = 10, 21
E4M3_MAX, INT8_MAX, INT4_MAX, BLOCK = 448, 127, 7, 32
INTEGER = 2  # AttributeProto.AttributeType.INT


class Value(NamedTuple):
    """An input or output of a model: where it is in memory, and what stands there.

    ``kind`` is a number of TensorProto.DataType, where NumPy has no dtype for it or packs nothing;
    ``shape`` is then that of the numbers. A ``constant`` is part of the model.
    """

    array: NDArray[Any]
    kind: int = 0
    shape: tuple[int, ...] | None = None
    constant: bool = False

    @property
    def type(self) -> int:
        """The number of its data type."""
        return self.kind or TYPES[self.array.dtype.name]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Its shape in the model."""
        return self.array.shape if self.shape is None else self.shape


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:  # noqa: PLR2004 - 7 bits a byte
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, content: int | str | bytes) -> bytes:
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    content = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _declared(name: str, value: Value) -> bytes:
    """Return a ValueInfoProto."""
    sizes = b"".join(_field(1, _field(1, size)) for size in value.sizes)
    return _field(1, name) + _field(2, _field(1, _field(1, value.type) + _field(2, sizes)))


def _initializer(name: str, value: Value) -> bytes:
    """Return a TensorProto."""
    sizes = b"".join(_field(1, size) for size in value.sizes)
    return sizes + _field(2, value.type) + _field(8, name) + _field(9, value.array.tobytes())


def _model(
    operator: str,
    inputs: Mapping[str, Value],
    outputs: Mapping[str, Value],
    attributes: Mapping[str, int],
    domain: str,
) -> bytes:
    """Return a ModelProto."""
    node = b"".join(_field(1, name) for name in inputs)
    node += b"".join(_field(2, name) for name in outputs) + _field(4, operator) + _field(7, domain)
    for name, number in attributes.items():
        node += _field(5, _field(1, name) + _field(3, number) + _field(20, INTEGER))
    graph = _field(1, node) + _field(2, operator)
    for name, value in inputs.items():
        made = _field(5, _initializer(name, value)) if value.constant else b""
        graph += made or _field(11, _declared(name, value))
    for name, value in outputs.items():
        graph += _field(12, _declared(name, value))
    versions = {"": OPSET, domain: 1 if domain else OPSET}
    sets = b"".join(
        _field(8, _field(1, name) + _field(2, version)) for name, version in versions.items()
    )
    return _field(1, IR_VERSION) + _field(7, graph) + sets


def node(
    operator: str,
    inputs: Mapping[str, Value],
    outputs: Mapping[str, Value],
    threads: int,
    attributes: Mapping[str, int] | None = None,
    domain: str = "",
) -> Callable[[], Any]:
    """Return the call that runs one operator of ONNX on arrays, and writes to arrays."""
    ort = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = ort.InferenceSession(
        _model(operator, inputs, outputs, attributes or {}, domain),
        options,
        providers=["CPUExecutionProvider"],
    )
    binding = session.io_binding()
    values = {name: value for name, value in inputs.items() if not value.constant}
    for bind, bound in ((binding.bind_input, values), (binding.bind_output, outputs)):
        for name, value in bound.items():
            bind(name, "cpu", 0, value.type, list(value.sizes), value.array.ctypes.data)
    return partial(_run, session.run_with_iobinding, binding, (inputs, outputs))


def _run(run: Callable[[Any], None], binding: Any, _alive: Any) -> None:
    """Run a model; the arrays are arguments because they have to live as long as the call."""
    run(binding)


def _linear(
    x: NDArray[Any], out: Value, parameters: Mapping[str, Value], threads: int
) -> Callable[[], Any]:
    """Return the call that encodes with parameters that are given."""
    return node("QuantizeLinear", {"x": Value(x), **parameters}, {"y": out}, threads)


def _constants(scale: float, zero: Any, kind: int = 0) -> dict[str, Value]:
    """Return a scale and a zero point that are part of a model."""
    return {
        "scale": Value(np.array(scale, np.float32), constant=True),
        "zero": Value(np.array(zero), kind, constant=True),
    }


def _affine(limits: tuple[int, int]) -> Callable[[NDArray[Any], int], Job]:
    """Return the job that encodes as integers of 8 bits."""

    def prepare(x: NDArray[Any], threads: int) -> Job:
        params = affine(x, limits)
        out = np.empty(x.shape, np.int8 if limits == INT8 else np.uint8)
        constants = _constants(params.scale, out.dtype.type(params.zero))
        return Job(_linear(x, Value(out), constants, threads), lambda: params.numbers(out))

    return prepare


def _uint4(x: NDArray[Any], threads: int) -> Job:
    params, out = affine(x, UINT4), np.empty((x.shape[0], x.shape[1] // 2), np.uint8)
    constants = _constants(params.scale, np.uint8(params.zero), PACKED_UINT4)
    call = _linear(x, Value(out, PACKED_UINT4, x.shape), constants, threads)
    return Job(call, lambda: params.numbers(nibbles(out, x.shape)))


def _dynamic(x: NDArray[Any], threads: int) -> Job:
    out, scale, zero = np.empty(x.shape, np.uint8), np.empty((), np.float32), np.empty((), np.uint8)
    outputs = {"y": Value(out), "scale": Value(scale), "zero": Value(zero)}
    call = node("DynamicQuantizeLinear", {"x": Value(x)}, outputs, threads)
    return Job(call, lambda: Affine(float(scale), int(zero)).numbers(out))


def _to_float(x: NDArray[Any], threads: int) -> Job:
    params, out = affine(x, UINT8), np.empty_like(x)
    codes = Value(params.codes(x, UINT8))
    return _decode(codes, _constants(params.scale, np.uint8(params.zero)), out, threads)


def _decode(
    codes: Value,
    parameters: Mapping[str, Value],
    out: NDArray[Any],
    threads: int,
    **attributes: int,
) -> Job:
    """Return the job that decodes."""
    inputs = {"x": codes, **parameters}
    call = node("DequantizeLinear", inputs, {"y": Value(out)}, threads, attributes)
    return Job(call, lambda: out)


def _fp8_parts(x: NDArray[Any], threads: int) -> tuple[Job, Job]:
    """Return the jobs that encode as E4M3, and decode what that made."""
    codes = Value(np.empty(x.shape, np.uint8), E4M3)
    constants = _constants(float(np.abs(x).max()) / E4M3_MAX, np.uint8(0), E4M3)
    back = _decode(codes, constants, np.empty_like(x), threads)
    encode = _linear(x, codes, constants, threads)
    return Job(encode, lambda: _ran(back)), back


def _ran(job: Job) -> NDArray[Any]:
    job.call()
    return job.numbers()


def _fp8(x: NDArray[Any], threads: int) -> Job:
    return _fp8_parts(x, threads)[0]


def _fp8_to_float(x: NDArray[Any], threads: int) -> Job:
    encode, decode = _fp8_parts(x, threads)
    encode.call()
    return decode


def _blocks(largest: int) -> Callable[[NDArray[Any], int], Job]:
    """Return the job that decodes integers with a scale for every 32."""

    def prepare(x: NDArray[Any], threads: int) -> Job:
        blocks = x.reshape(x.shape[0], -1, BLOCK)
        scales = np.abs(blocks).max(-1) / np.float32(largest)
        codes = np.rint(blocks / scales[..., None]).astype(np.int8).reshape(x.shape)
        value = Value(codes)
        if largest == INT4_MAX:
            packed = (codes[:, ::2] & 15 | codes[:, 1::2] << 4).view(np.uint8)
            value = Value(packed, PACKED_INT4, x.shape)
        parameters = {"scale": Value(scales)}
        return _decode(value, parameters, np.empty_like(x), threads, axis=1, block_size=BLOCK)

    return prepare


PEERS = (
    Peer(
        "onnxruntime",
        "onnxruntime",
        "onnxruntime",
        {
            "affine_uint8": _affine(UINT8),
            "affine_int8": _affine(INT8),
            "affine_uint4": _uint4,
            "affine_to_float": _to_float,
            "affine_dynamic": _dynamic,
            "fp8": _fp8,
            "fp8_to_float": _fp8_to_float,
            "block32_int8_to_float": _blocks(INT8_MAX),
            "block32_int4_to_float": _blocks(INT4_MAX),
        },
    ),
)
