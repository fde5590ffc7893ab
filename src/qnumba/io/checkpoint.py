"""Quantized arrays in safetensors files: which tensors an array becomes, and what says so.

An array NAME becomes tensors that other tools can read without qnumba:

==================  ==============================================  ==========================
tensor              dtype                                           shape
==================  ==============================================  ==========================
NAME                codes or words: I8, U8, F8_E4M3, F8_E5M2, U32   as stored (``q.words``)
NAME_scale          F32, F16, BF16, F8_E8M0 (UE8M0) or F8_E4M3      block grid, ``[]`` per tensor
                    (UE4M3, whose numbers E4M3 has too)
NAME_scale_2        F32, the global scale; two-level schemes only   ``[]``
NAME_zero_point     I8 or U8; affine schemes only                   block grid
==================  ==============================================  ==========================

``__metadata__["qnumba"]`` holds JSON: ``{"version": 1, "tensors": {NAME: {"scheme": TEXT, "shape":
[...], "dtype": TEXT, "options": TEXT}}}``, with the scheme as ``str(scheme)``, the shape and dtype
of the array that was quantized, and the options that made the codes.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.errors import DecodeError, QuantizationError
from qnumba.io.files import show
from qnumba.io.safetensors_header import DTYPES
from qnumba.layout import Plan, plan
from qnumba.params import Params
from qnumba.qarray import QArray
from qnumba.scheme import Scheme
from qnumba.serialize.record import decode_sections, encode_sections
from qnumba.validate import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from qnumba.io.safetensors import SafetensorsFile

KEY = "qnumba"  # in the metadata of the file
VERSION = 1

SCALE_DTYPES = {
    "F32": "F32",
    "F16": "F16",
    "BF16": "BF16",
    "UE8M0": "F8_E8M0",
    "UE4M3": "F8_E4M3",
}
FLOAT_CODES = {"E4M3": "F8_E4M3", "E5M2": "F8_E5M2"}  # of values stored one per byte
INTEGERS = {"int8": "I8", "uint8": "U8", "uint32": "U32"}


# In the order of the sections of a record.
SUFFIXES = ("", "_zero_point", "_scale", "_scale_2")


class Entry(NamedTuple):
    """What the metadata say about one quantized array: all there is to know without its data."""

    plan: Plan
    dtype: str
    options: str = ""


def entry_of(q: QArray) -> Entry:
    """Return what the metadata say about a quantized array."""
    return Entry(plan(q.scheme, q.shape), q.source_dtype, q.options)


def tensor_layout(name: str, layout: Plan) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return dtype and shape of the tensors that an array becomes, in the order of SUFFIXES."""
    parts = {name: (_words_dtype(layout), layout.words_shape)}
    if layout.scheme.mode == "affine":
        points = "U8" if layout.value.kind == "uint" else "I8"
        parts[f"{name}_zero_point"] = (points, layout.grid)
    parts[f"{name}_scale"] = (SCALE_DTYPES[layout.scale.name], layout.grid)
    if layout.scheme.two_level:
        parts[f"{name}_scale_2"] = ("F32", ())
    return parts


def pack_qarray(name: str, q: QArray) -> dict[str, NDArray[Any]]:
    """Return the tensors that a quantized array becomes, as ``tensor_layout`` announces them.

    Parameters
    ----------
    name : str
        The name of the array in the file; the other tensors get a suffix.
    q : QArray
        The array.

    Returns
    -------
    dict of str to numpy.ndarray
        The codes are a view. F8 and BF16 are uint8 and uint16 with the same bits.
    """
    layout = plan(q.scheme, q.shape)
    params = Params(q.scales, q.global_scale, q.zero_points)
    sections = encode_sections(layout, q.words, params)
    by_name = {name + suffix: part for suffix, part in zip(SUFFIXES, sections, strict=True)}
    return {
        part: np.frombuffer(by_name[part], DTYPES[dtype].storage).reshape(shape)
        for part, (dtype, shape) in tensor_layout(name, layout).items()
    }


def unpack_qarray(file: SafetensorsFile, name: str) -> QArray:
    """Return a quantized array of a file. Its codes stay in the file: nothing large is copied.

    Parameters
    ----------
    file : SafetensorsFile
        An open file.
    name : str
        One of the names that ``read_entries(file)`` gives.

    Returns
    -------
    QArray

    Raises
    ------
    KeyError
        The file holds no quantized array of this name.
    DecodeError
        The tensors do not fit the scheme, or hold what no writer makes.
    """
    arrays = _read_metadata(file)
    if name not in arrays:
        raise KeyError(f"{file.path} has no quantized array {name!r}; it has {len(arrays)}")
    layout, dtype, options = _read_entry(file, name, arrays[name])
    parts = tensor_layout(name, layout)
    sections = [_part_bytes(file, name + suffix, parts) for suffix in SUFFIXES]
    try:
        words, params = decode_sections(layout, sections, copy=False)
    except DecodeError as error:
        raise DecodeError(f"{file.path}: {show(name)}: {error}") from error
    return QArray(layout, words, params, source_dtype=dtype, options=options)


def read_entries(file: SafetensorsFile) -> dict[str, Entry]:
    """Return what a file says of the quantized arrays in it, by name; empty if it has none.

    Raises
    ------
    DecodeError
        The metadata are not what a writer makes, or the file has not the tensors they announce.
    """
    return {name: _read_entry(file, name, found) for name, found in _read_metadata(file).items()}


def entries_text(entries: Mapping[str, Entry]) -> str:
    """Return the metadata, to be stored under KEY, that ``read_entries`` reads."""
    tensors = {
        name: {
            "scheme": str(layout.scheme),
            "shape": layout.shape,
            "dtype": dtype,
            "options": options,
        }
        for name, (layout, dtype, options) in entries.items()
    }
    return json.dumps({"version": VERSION, "tensors": tensors}, separators=(",", ":"))


def _words_dtype(layout: Plan) -> str:
    if layout.scheme.store == "native" and layout.scheme.value in FLOAT_CODES:
        return FLOAT_CODES[layout.scheme.value]
    return INTEGERS[layout.words_dtype.name]


def _read_metadata(file: SafetensorsFile) -> dict[str, Any]:
    """Return what the metadata have for each array, unchecked."""
    try:
        return _parse(file.metadata.get(KEY, entries_text({})))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise DecodeError(f"{file.path}: its qnumba metadata are damaged: {error!r}") from error


@lru_cache(maxsize=8)  # a file's text is parsed for every array that is read
def _parse(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if found["version"] != VERSION:
        raise ValueError(
            f"version {show(found['version'])}, where this library reads {VERSION}; use a newer one"
        )
    return dict(found["tensors"].items())


def _read_entry(file: SafetensorsFile, name: str, found: Any) -> Entry:
    """Check what the metadata have for one array, also against the header's tensors."""
    try:
        scheme, shape = Scheme.parse(found["scheme"]), found["shape"]
        dtype, options = found["dtype"], found.get("options", "")
        if not all(isinstance(text, str) for text in (dtype, options)):
            raise TypeError("dtype and options must be text")  # noqa: TRY301 - gains the name
        if not all(type(extent) is int and extent >= 0 for extent in shape):
            raise ValueError("the shape must be of whole numbers")  # noqa: TRY301 - the same
        require(scheme, tuple(shape), dtype)
        layout = plan(scheme, tuple(shape))
        _require_tensors(file, tensor_layout(name, layout))
    except (QuantizationError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise DecodeError(f"{file.path}: quantized array {show(name)}: {error}") from error
    return Entry(layout, dtype, options)


def _require_tensors(
    file: SafetensorsFile, parts: Mapping[str, tuple[str, tuple[int, ...]]]
) -> None:
    for part, (dtype, shape) in parts.items():
        found = file.info(part)[:2] if part in file else "not there"
        if found != (dtype, shape):
            raise ValueError(f"{show(part)} should be {dtype} {list(shape)}, but is {show(found)}")


def _part_bytes(file: SafetensorsFile, part: str, parts: Mapping[str, object]) -> memoryview:
    if part not in parts:
        return memoryview(b"")
    return file[part].reshape(-1).view(np.uint8).data
