"""Read and write burnpack files (``.bpk``), the one format in which burn keeps quantized tensors.

Ten bytes (magic, version, length of the metadata), the metadata as CBOR, zeros up to a multiple of
256 bytes, then the tensors, each at a multiple of 256. A quantized tensor's bytes are its record:
codes, scales, global scale (``QArray.to_record``). The CBOR comes from the package cbor2.

burn writes 8-bit codes in ``packed_u32`` without padding: where rows are no whole words their
record is shorter than what ``to_record`` gives. Both lengths are read, and burn's is written.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qnumba.errors import DataError, DecodeError, QuantizationError
from qnumba.io.burnpack_metadata import (
    PLAIN_DTYPES,
    Entry,
    Metadata,
    Scalar,
    as_scalar,
    build_metadata,
    parse_metadata,
    show_dtype,
)
from qnumba.io.burnpack_tensors import RawTensor, decode, describe, parts, record_sizes
from qnumba.io.files import (
    TensorFile,
    atomic_write,
    count_bytes,
    map_bytes,
    require_named,
    show,
    write_array,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

HEADER = struct.Struct("<IHI")  # magic, version, bytes of metadata
MAGIC = 0x4255524E
VERSION = 1
ALIGNMENT = 256
# The limits of burn's reader.
MAX_METADATA = 100 << 20
MAX_TENSORS = 100_000
MAX_TENSOR = 10 << 30
MAX_FILE = 100 << 30


class TensorInfo(NamedTuple):
    """What a file says about one tensor; ``dtype`` is ``F32`` or the like, or a scheme's text."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    param_id: int | None


class BurnpackFile(TensorFile["Entry"]):
    """A burnpack file, opened without reading its tensors.

    A mapping from tensor names, in the order of their bytes, to what they hold: a QArray, or a
    read-only array (BF16 as uint16 with the same bits). Both look straight into the mapped file;
    nothing large is copied, and they stay valid after the file is closed.

    Parameters
    ----------
    path : path-like
        The file. The metadata are checked whole before anything else is read or allocated.

    Attributes
    ----------
    metadata : dict of str to str
        The free-form text of the file.
    scalars : dict of str to Scalar
        Its numbers, each with the kind burn has for it.

    Raises
    ------
    DecodeError
        Not a burnpack file, a damaged one, one of burn 0.21 or before, or one beyond the limits of
        burn's reader.
    ImportError
        cbor2 is not installed: ``pip install "qnumba[burn]"``.
    OSError
        The file cannot be opened.

    Examples
    --------
    >>> with BurnpackFile("model.bpk") as file:  # doctest: +SKIP
    ...     for name in file:
    ...         print(name, file.info(name))
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        data = map_bytes(self.path)
        try:
            begin, found = _parse(data)
        except ValueError as error:
            raise DecodeError(f"{self.path}: {error}") from error
        self._slots = found.tensors
        self.metadata = found.texts
        self.scalars = found.scalars
        self._data = data[begin:]

    def info(self, name: str) -> TensorInfo:
        """Dtype or scheme, shape, bytes and burn's parameter id, from the metadata alone."""
        entry = self._slot(name)
        nbytes = entry.end - entry.begin
        return TensorInfo(show_dtype(entry.dtype), entry.shape, nbytes, entry.param_id)

    def raw(self, name: str) -> RawTensor:
        """Return a tensor's bytes and description: what ``write_burnpack`` writes back unchanged.

        Also for what ``file[name]`` cannot give: lookup schemes, whose table is not in the file.
        """
        entry = self._slot(name)
        data = self._mapped(name)[entry.begin : entry.end]
        return RawTensor(entry.dtype, entry.shape, data, entry.param_id)

    def __getitem__(self, name: str) -> Any:
        """Look into one tensor: a QArray, or a read-only array."""
        try:
            return decode(self.raw(name))
        except QuantizationError as error:
            raise DecodeError(f"{self.path}: {show(name)}: {error}") from error


def write_burnpack(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Any],
    *,
    metadata: Mapping[str, str] | None = None,
    scalars: Mapping[str, Any] | None = None,
    param_ids: Mapping[str, int] | None = None,
) -> None:
    """Write a burnpack file that burn reads.

    Parameters
    ----------
    path : path-like
        The file to write; it is replaced only when all is written.
    tensors : mapping of str to QArray, array_like or RawTensor
        In the order their bytes are to have. Arrays are of bool, an integer or a float dtype;
        bfloat16 is ml_dtypes'.
    metadata : mapping of str to str, optional
        Free-form text.
    scalars : mapping of str to number, optional
        bool, int or float; a ``Scalar`` chooses the kind, otherwise an int of at least 0 is UInt.
    param_ids : mapping of str to int, optional
        burn's ids of parameters, of 64 bits.

    Raises
    ------
    UnsupportedSchemeError
        burn cannot express a scheme: affine, lookup, ``packed_u8``, block extents over 255; or it
        would misread the array: 2- and 4-bit codes in ``packed_u32`` whose rows are no whole words.
    QuantizedTypeError
        An array is of a dtype burn does not have, or `tensors` is no mapping.
    DataError
        Names, text, numbers or sizes are not such as burn reads.
    ImportError
        cbor2 is not installed.
    OSError
        The file cannot be written.

    Examples
    --------
    >>> write_burnpack("model.bpk", {"weight": q}, metadata={"producer": "me"})  # doctest: +SKIP
    """
    require_named(tensors)
    try:
        entries, raw = _describe(tensors, metadata, scalars, param_ids or {})
    except QuantizationError:
        raise
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    data_begin = _aligned(HEADER.size + len(raw))
    end = max((data_begin + entry.end for entry in entries.values()), default=data_begin)
    with atomic_write(path) as file:
        file.write(HEADER.pack(MAGIC, VERSION, len(raw)) + raw)
        for name, tensor in tensors.items():
            begin = data_begin + entries[name].begin
            file.write(bytes(begin - file.tell()))
            for part in parts(tensor):
                write_array(file, part, part.dtype.newbyteorder("<"))
        file.write(bytes(max(end - file.tell(), 0)))


def _describe(
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None,
    scalars: Mapping[str, Any] | None,
    ids: Mapping[str, int],
) -> tuple[dict[str, Entry], bytes]:
    """Place the tensors and return their entries and the metadata of the file, as burn reads it."""
    entries: dict[str, Entry] = {}
    position = 0
    for name, tensor in tensors.items():
        begin = _aligned(position)
        dtype, shape, nbytes, identity = describe(name, tensor)
        position = begin + nbytes
        entries[name] = Entry(dtype, shape, begin, position, ids.get(name, identity))
    numbers = {name: as_scalar(name, value) for name, value in (scalars or {}).items()}
    raw = build_metadata(Metadata(entries, dict(metadata or {}), numbers))
    parse_metadata(raw)  # what is written must be what is read
    _require_limits(len(raw), entries, _aligned(HEADER.size + len(raw)) + position)
    return entries, raw


def _parse(data: NDArray[np.uint8]) -> tuple[int, Metadata]:
    """Read and check all but the tensors; return where the data section begins."""
    if data.size < HEADER.size:
        raise ValueError(f"a burnpack file has at least 10 bytes, this one has {data.size}")
    magic, version, length = HEADER.unpack(data[: HEADER.size].tobytes())
    if magic != MAGIC:
        raise ValueError(f"not a burnpack file: it begins with {data[:4].tobytes()!r}, not b'NRUB'")
    if version > VERSION:
        raise ValueError(f"version {version}, where this library reads up to {VERSION}")
    if length > min(MAX_METADATA, data.size - HEADER.size):
        raise ValueError(
            f"the metadata claim {length} bytes of a file of {data.size} (at most {MAX_METADATA} "
            "are allowed); the file is damaged or was cut short"
        )
    found = parse_metadata(data[HEADER.size : HEADER.size + length].tobytes())
    begin = _aligned(HEADER.size + length)
    _require_limits(length, found.tensors, data.size)
    order = sorted(found.tensors.items(), key=lambda item: (item[1].begin, item[1].end))
    _require_cover([entry for _, entry in order], max(data.size - begin, 0))
    for name, entry in order:
        _require_size(name, entry)
    return begin, found._replace(tensors=dict(order))


def _require_limits(metadata: int, entries: Mapping[str, Entry], nbytes: int) -> None:
    """Refuse what burn's reader refuses."""
    largest = max((entry.end - entry.begin for entry in entries.values()), default=0)
    for what, size, limit in (
        ("bytes of metadata", metadata, MAX_METADATA),
        ("tensors", len(entries), MAX_TENSORS),
        ("bytes in a tensor", largest, MAX_TENSOR),
        ("bytes in a file", nbytes, MAX_FILE),
    ):
        if size > limit:
            raise ValueError(f"{size} {what}; burn reads at most {limit}")


def _require_cover(entries: list[Entry], nbytes: int) -> None:
    """Refuse tensors that overlap, and data that end before or after the last tensor."""
    end = 0
    for entry in entries:
        if entry.begin < end and entry.begin < entry.end:
            raise ValueError(f"two tensors claim byte {entry.begin} of the data")
        end = max(end, entry.end)
    if end != nbytes:
        fault = "was cut short" if nbytes < end else "has bytes that belong to nothing"
        raise ValueError(
            f"the tensors end at byte {end} of the data, of {nbytes}: the file {fault}"
        )


def _require_size(name: str, entry: Entry) -> None:
    """Refuse a tensor whose bytes are not as many as its dtype and shape say."""
    nbytes = entry.end - entry.begin
    try:
        count_bytes(entry.shape, 8)
        if isinstance(entry.dtype, str):
            sizes = {count_bytes(entry.shape, PLAIN_DTYPES[entry.dtype].itemsize)}
        else:
            sizes = record_sizes(entry.dtype, entry.shape)
    except ValueError as error:
        raise ValueError(f"tensor {show(name)}: {error}") from error
    if sizes and nbytes not in sizes:
        raise ValueError(
            f"tensor {show(name)}: {show_dtype(entry.dtype)} of shape {list(entry.shape)} takes "
            f"{' or '.join(map(str, sorted(sizes)))} bytes, but has {nbytes}"
        )


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


__all__ = ["BurnpackFile", "RawTensor", "Scalar", "TensorInfo", "write_burnpack"]
