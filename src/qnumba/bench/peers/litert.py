"""LiteRT: models of one operator, run by XNNPACK."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qnumba.bench.peers.job import INT8, UINT8, Affine, Job, Peer, affine

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

FILE, VERSION = b"TFL3", 3


def _model(operator: str, size: int, params: Affine, kind: str) -> bytes:
    """Return a model that is one operator, QUANTIZE or DEQUANTIZE, on so many values."""
    schema = import_module("ai_edge_litert.schema_py_generated")

    def tensor(name: bytes, dtype: str, params: Affine | None = None) -> Any:
        made = schema.TensorT()
        made.name, made.type, made.shape = name, getattr(schema.TensorType, dtype), [1, size]
        made.quantization = schema.QuantizationParametersT()
        if params is not None:
            made.quantization.scale = [params.scale]
            made.quantization.zeroPoint = [params.zero]
        return made

    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, operator)
    step = schema.OperatorT()
    step.inputs, step.outputs = [0], [1]
    graph = schema.SubGraphT()
    graph.tensors = [tensor(b"floats", "FLOAT32"), tensor(b"codes", kind, params)]
    if operator == "DEQUANTIZE":
        graph.tensors.reverse()
    graph.operators, graph.inputs, graph.outputs = [step], [0], [1]
    model = schema.ModelT()
    model.version, model.buffers = VERSION, [schema.BufferT()]
    model.operatorCodes, model.subgraphs = [code], [graph]
    builder = import_module("flatbuffers").Builder(0)
    builder.Finish(model.Pack(builder), FILE)
    return bytes(builder.Output())


def _run(model: bytes, source: NDArray[Any], threads: int) -> tuple[Any, Any]:
    """Return the call of a model on an array, and what returns its result."""
    module = import_module("ai_edge_litert.interpreter")
    interpreter = module.Interpreter(model_content=model, num_threads=threads)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], source.reshape(1, -1))
    place = interpreter.get_output_details()[0]["index"]
    return interpreter.invoke, lambda: interpreter.get_tensor(place).reshape(source.shape)


def _encode(limits: tuple[int, int]) -> Callable[[NDArray[Any], int], Job]:
    def prepare(x: NDArray[Any], threads: int) -> Job:
        params, kind = affine(x, limits), "INT8" if limits == INT8 else "UINT8"
        call, result = _run(_model("QUANTIZE", x.size, params, kind), x, threads)
        return Job(call, lambda: params.numbers(result()))

    return prepare


def _to_float(x: NDArray[Any], threads: int) -> Job:
    params = affine(x, INT8)
    model = _model("DEQUANTIZE", x.size, params, "INT8")
    return Job(*_run(model, params.codes(x, INT8), threads))


PEERS = (
    Peer(
        "LiteRT",
        "ai_edge_litert",
        "litert",
        {
            "affine_uint8": _encode(UINT8),
            "affine_int8": _encode(INT8),
            "affine_to_float": _to_float,
        },
    ),
)
