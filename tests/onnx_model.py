"""ONNX models of one node, written byte by byte: enough protobuf for an oracle, no dependency.

Field numbers are those of onnx.proto (ONNX 1.16): ModelProto, GraphProto, NodeProto.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "float16": 10, "float8_e4m3fn": 17, "float8_e5m2": 19}
OPSET = 21
INTEGER = 2  # AttributeProto.AttributeType.INT


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, content: int | str | bytes) -> bytes:
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    content = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _value(name: str, dtype: str) -> bytes:
    return _field(1, name) + _field(2, _field(1, _field(1, TYPES[dtype])))


def run_node(
    operator: str, inputs: list[np.ndarray], outputs: list[str], **attributes: int
) -> list[np.ndarray]:
    """Run one operator of ONNX and return its outputs, whose dtypes are given by name."""
    names = [f"x{i}" for i in range(len(inputs))]
    results = [f"y{i}" for i in range(len(outputs))]
    node = b"".join(_field(1, name) for name in names)
    node += b"".join(_field(2, name) for name in results) + _field(4, operator)
    for name, number in attributes.items():
        node += _field(5, _field(1, name) + _field(3, number) + _field(20, INTEGER))
    graph = _field(1, node) + _field(2, "oracle")
    for name, array in zip(names, inputs, strict=True):
        graph += _field(11, _value(name, array.dtype.name))
    for name, dtype in zip(results, outputs, strict=True):
        graph += _field(12, _value(name, dtype))
    model = _field(1, 10) + _field(7, graph) + _field(8, _field(1, "") + _field(2, OPSET))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds: dict[str, Any] = {}
    for name, array in zip(names, inputs, strict=True):
        kind = array.dtype.name
        feeds[name] = (
            onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
                array.view(np.uint8), TYPES[kind]
            )
            if kind.startswith("float8")
            else onnxruntime.OrtValue.ortvalue_from_numpy(array)
        )
    made = session.run_with_ort_values(results, feeds)
    return [value.numpy() for value in made]
