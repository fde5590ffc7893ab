"""What the tests share: golden vectors, bit comparison, one call that runs a backend."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from qnumba.layout import plan as make_plan
from qnumba.params import Options, Params
from qnumba.scheme import Scheme

GOLDEN = Path(__file__).parent / "golden"
STORE_NAMES = {"Native": "native", "PackedU32": "packed_u32", "PackedNative": "packed_native"}
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@cache
def golden(name: str) -> Any:
    """Return the data of one golden file."""
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))["data"]


def f32(patterns: Any) -> np.ndarray:
    """Return the float32 numbers of a list of bit patterns."""
    return np.array(patterns, np.uint32).view(np.float32)


def golden_scheme(row: dict[str, Any], **changes: Any) -> Scheme:
    """Return the Scheme a golden row describes."""
    block = None if row["block"] is None else tuple(row["block"])
    arguments = {
        "value": row["value"],
        "mode": row["mode"].lower(),
        "block": block,
        "block_scale": row["block_dtype"],
        "tensor_scale": row["tensor"],
        "store": STORE_NAMES[row["store"]],
        "pack_axis": row["packed_dim"] or 0,
    } | changes
    return Scheme(arguments.pop("value"), **arguments)


def bits(array: Any) -> np.ndarray:
    """Return an array's bit patterns, every NaN replaced by one pattern."""
    array = np.asarray(array)
    if array.dtype.kind in "biu":
        return array
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        array = np.where(array != array, np.array(np.nan, array.dtype), array)  # noqa: PLR0124
    return np.ascontiguousarray(array).view(BITS[array.dtype.itemsize]).reshape(array.shape)


def assert_same_bits(actual: Any, expected: Any, what: str = "", given: Any = None) -> None:
    """Fail with the elements that differ, unless two arrays agree in dtype, shape and bits.

    ``given`` is an array of the same shape whose elements are printed beside those that differ.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype, f"{what}: dtype {actual.dtype}, not {expected.dtype}"
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, not {expected.shape}"
    differ = bits(actual) != bits(expected)
    if not differ.any():
        return
    places = np.argwhere(differ)
    lines = [f"{what}: {len(places)} of {differ.size} elements differ"]
    for place in map(tuple, places[:8].tolist()):
        line = f"  {place}: {actual[place]!r}, not {expected[place]!r}"
        if given is not None and np.shape(given) == actual.shape:
            line += f", given {np.asarray(given)[place]!r}"
        lines.append(line)
    raise AssertionError("\n".join(lines))


class Quantized(NamedTuple):
    """Everything a backend makes of an array."""

    codes: np.ndarray
    words: np.ndarray
    params: Params
    nonfinite: bool


def quantize_on(
    backend: ModuleType, x: np.ndarray, scheme: Scheme, params: Params | None = None, **options: Any
) -> Quantized:
    """Quantize a contiguous float array on one backend, below the front door."""
    x = np.require(x, requirements=["C", "A"])  # what the front door promises a backend
    plan = make_plan(scheme, x.shape)
    words = np.full(plan.words_shape, 0x55, np.uint8).astype(plan.words_dtype)  # all overwritten
    params, nonfinite = backend.quantize(x, plan, Options(**options), params, words)
    return Quantized(unpack_on(backend, words, scheme, x.shape), words, params, nonfinite)


def calibrate_on(
    backend: ModuleType, x: np.ndarray, scheme: Scheme, **options: Any
) -> tuple[Params, bool]:
    """Calibrate on one backend, below the front door."""
    x = np.require(x, requirements=["C", "A"])
    return backend.calibrate(x, make_plan(scheme, x.shape), Options(**options))


def dequantize_on(
    backend: ModuleType,
    words: np.ndarray,
    scheme: Scheme,
    shape: tuple[int, ...],
    params: Params,
    dtype: Any = np.float32,
) -> np.ndarray:
    """Decode words on one backend, below the front door."""
    out = np.full(shape, 7, dtype)  # all overwritten
    backend.dequantize(words, make_plan(scheme, shape), params, out)
    return out


def code_dtype(scheme: Scheme) -> type:
    """Return the dtype codes have in Python: int8 for Q* numbers, uint8 for everything else."""
    return np.int8 if scheme.value.startswith("Q") and scheme.mode != "lookup" else np.uint8


def pack_on(
    backend: ModuleType, codes: np.ndarray, scheme: Scheme, shape: tuple[int, ...]
) -> np.ndarray:
    """Pack codes on one backend, below the front door."""
    plan = make_plan(scheme, shape)
    words = np.full(plan.words_shape, 0x55, np.uint8).astype(plan.words_dtype)
    backend.pack(codes, plan, words)
    return words


def unpack_on(
    backend: ModuleType, words: np.ndarray, scheme: Scheme, shape: tuple[int, ...]
) -> np.ndarray:
    """Unpack words on one backend, below the front door."""
    codes = np.full(shape, 0x55, code_dtype(scheme))
    backend.unpack(words, make_plan(scheme, shape), codes)
    return codes
