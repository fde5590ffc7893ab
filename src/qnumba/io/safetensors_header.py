"""The header of a safetensors file: the dtypes of the format, and the rules a header must keep.

Everything here raises ValueError; the reader says which file it was.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.io.files import MAX_INT, check_name, count_bytes, show

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_HEADER = 100_000_000  # bytes; the limit of the format
ALIGNMENT = 8  # bytes; of the first tensor in the file
BYTE = 8  # bits
METADATA = "__metadata__"


class Dtype(NamedTuple):
    """A dtype of the format: its width, the NumPy dtype that holds it, and its ml_dtypes name."""

    bits: int
    storage: np.dtype[Any]
    ml_name: str | None = None


class TensorInfo(NamedTuple):
    """What the header says about one tensor."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class Slot(NamedTuple):
    """A tensor and the place of its bytes after the header."""

    info: TensorInfo
    begin: int


DTYPES = {
    "BOOL": Dtype(8, np.dtype("|b1")),
    "U8": Dtype(8, np.dtype("|u1")),
    "U16": Dtype(16, np.dtype("<u2")),
    "U32": Dtype(32, np.dtype("<u4")),
    "U64": Dtype(64, np.dtype("<u8")),
    "I8": Dtype(8, np.dtype("|i1")),
    "I16": Dtype(16, np.dtype("<i2")),
    "I32": Dtype(32, np.dtype("<i4")),
    "I64": Dtype(64, np.dtype("<i8")),
    "F16": Dtype(16, np.dtype("<f2")),
    "F32": Dtype(32, np.dtype("<f4")),
    "F64": Dtype(64, np.dtype("<f8")),
    "C64": Dtype(64, np.dtype("<c8")),
    "BF16": Dtype(16, np.dtype("<u2"), "bfloat16"),
    "F8_E4M3": Dtype(8, np.dtype("|u1"), "float8_e4m3fn"),
    "F8_E5M2": Dtype(8, np.dtype("|u1"), "float8_e5m2"),
    "F8_E8M0": Dtype(8, np.dtype("|u1"), "float8_e8m0fnu"),
    "F8_E4M3FNUZ": Dtype(8, np.dtype("|u1"), "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": Dtype(8, np.dtype("|u1"), "float8_e5m2fnuz"),
    "F6_E2M3": Dtype(6, np.dtype("|u1")),
    "F6_E3M2": Dtype(6, np.dtype("|u1")),
    "F4": Dtype(4, np.dtype("|u1")),
}

# Dtypes narrower than a byte are packed, so no NumPy array has them element by element.
NAME_OF_DTYPE = {
    row.ml_name or row.storage.name: name for name, row in DTYPES.items() if row.bits >= BYTE
}


def stored_shape(dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the array that holds a tensor: bytes on the last axis where elements are narrower.

    Raises
    ------
    ValueError
        A row of the tensor does not end at a byte.
    """
    bits = DTYPES[dtype].bits
    if bits >= BYTE:
        return shape
    group = math.lcm(bits, BYTE) // bits
    if not shape or shape[-1] % group:
        raise ValueError(
            f"{dtype} needs a last axis that is a multiple of {group}, so that rows end at whole "
            f"bytes; the shape is {show(list(shape))}"
        )
    return (*shape[:-1], shape[-1] * bits // BYTE)


def tensor_bytes(dtype: object, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of the named dtype."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"unknown dtype {show(dtype)}; the format has {', '.join(DTYPES)}")
    return count_bytes(stored_shape(dtype, shape), DTYPES[dtype].storage.itemsize)


def parse_header(data: NDArray[np.uint8]) -> tuple[int, dict[str, Slot], dict[str, str]]:
    """Read and check the header of a whole file given as bytes.

    Returns
    -------
    int
        Where the tensors' bytes begin.
    dict of str to Slot
        The tensors in the order of their bytes, which cover the rest of the file exactly.
    dict of str to str
        The metadata.
    """
    raw = _raw_header(data)
    try:
        header = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_without_repeats, parse_constant=_no_constant
        )
    except RecursionError:
        raise ValueError("the header is nested too deeply") from None
    metadata = check_metadata(header.pop(METADATA, None))
    begin = ALIGNMENT + len(raw)
    return begin, _place(header, data.size - begin), metadata


def build_header(
    layout: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str] | None
) -> tuple[bytes, dict[str, int]]:
    """Place the tensors, the widest elements first, which aligns every tensor to its elements.

    Returns
    -------
    bytes
        The length and the header, padded so that the first tensor is aligned.
    dict of str to int
        Where in the file each tensor's bytes begin.
    """
    for name in layout:
        check_name(name)
    if METADATA in layout:
        raise ValueError(f"a tensor cannot be named {METADATA!r}; give metadata= instead")
    texts = check_metadata(dict(metadata) if isinstance(metadata, Mapping) else metadata)
    header: dict[str, Any] = {METADATA: texts} if texts else {}
    sizes = {name: tensor_bytes(dtype, shape) for name, (dtype, shape) in layout.items()}
    offsets, position = {}, 0
    for name in sorted(layout, key=lambda name: -DTYPES[layout[name][0]].storage.itemsize):
        dtype, shape = layout[name]
        offsets[name], end = position, position + sizes[name]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    raw += b" " * (-len(raw) % ALIGNMENT)
    if len(raw) > MAX_HEADER:
        raise ValueError(f"the header takes {len(raw)} bytes, the format allows {MAX_HEADER}")
    begin = ALIGNMENT + len(raw)
    return struct.pack("<Q", len(raw)) + raw, {name: begin + at for name, at in offsets.items()}


def check_metadata(metadata: object) -> dict[str, str]:
    """Return the metadata, empty if there is none; refuse all but text under text."""
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise ValueError(f"{METADATA} must be an object, not {type(metadata).__name__}")  # noqa: TRY004 - file
    for key, text in metadata.items():
        if type(key) is not str or type(text) is not str:
            raise ValueError(f"{METADATA} must map strings to strings; {show(key)} does not")
        check_name(key + text)
    return metadata


def _raw_header(data: NDArray[np.uint8]) -> bytes:
    if data.size < ALIGNMENT:
        raise ValueError(f"a safetensors file has at least 8 bytes, this one has {data.size}")
    (length,) = struct.unpack("<Q", data[:ALIGNMENT].tobytes())
    possible = min(MAX_HEADER, data.size - ALIGNMENT)
    if length > possible:
        raise ValueError(
            f"the header claims {length} bytes where at most {possible} are possible; this is no "
            "safetensors file, or it was cut short"
        )
    raw = data[ALIGNMENT : ALIGNMENT + length].tobytes()
    if not raw.startswith(b"{"):
        raise ValueError(f"the header must be a JSON object, but begins with {raw[:8]!r}")
    return raw


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        repeated, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the header has {show(repeated)} twice")
    return unique


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _place(header: dict[str, Any], data_size: int) -> dict[str, Slot]:
    """Check every tensor, and that together they cover the data without hole or overlap."""
    slots = {name: _check_entry(name, entry) for name, entry in header.items()}
    # an empty tensor comes before the one that begins at the same byte
    order = sorted(slots, key=lambda name: (slots[name].begin, slots[name].info.nbytes))
    position = 0
    for name in order:
        begin = slots[name].begin
        if begin != position:
            fault = "overlaps what is before it" if begin < position else "leaves a hole before it"
            raise ValueError(f"tensor {show(name)} at byte {begin} {fault} (expected {position})")
        position += slots[name].info.nbytes
    if position != data_size:
        raise ValueError(f"the tensors take {position} bytes, but {data_size} follow the header")
    return {name: slots[name] for name in order}


def _check_entry(name: str, entry: object) -> Slot:
    try:
        check_name(name)
        return _read_entry(entry)
    except ValueError as error:
        raise ValueError(f"tensor {show(name)}: {error}") from error


def _read_entry(entry: object) -> Slot:
    """Check one tensor's dtype, shape and offsets against each other."""
    if not isinstance(entry, dict):
        raise ValueError(f"expected an object, got {type(entry).__name__}")  # noqa: TRY004 - file
    dtype = entry.get("dtype")
    shape = _integers(entry.get("shape"), "shape")
    offsets = _integers(entry.get("data_offsets"), "data_offsets")
    nbytes = tensor_bytes(dtype, shape)
    if len(offsets) != 2 or offsets[1] - offsets[0] != nbytes:  # noqa: PLR2004 - begin and end
        raise ValueError(
            f"{dtype} {list(shape)} takes {nbytes} bytes, which data_offsets do not give"
        )
    return Slot(TensorInfo(str(dtype), shape, nbytes), offsets[0])


def _integers(found: object, what: str) -> tuple[int, ...]:
    # the exact type: True is an int to isinstance, and a float would be rounded
    if not isinstance(found, list) or not all(type(n) is int and 0 <= n <= MAX_INT for n in found):
        raise ValueError(f"{what} must be a list of integers from 0 to 2**63 - 1")
    return tuple(found)
