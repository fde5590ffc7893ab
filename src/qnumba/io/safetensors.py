"""Read and write safetensors files: a length, a JSON header, and the tensors' bytes.

The format is little-endian and row-major. The header gives for each tensor a dtype, a shape (which
counts elements, also for dtypes narrower than a byte) and the place of its bytes; the bytes follow
each other without hole or overlap up to the end of the file.

Every dtype of the format is read and written. Those NumPy has no dtype for come as plain unsigned
integers that hold the same bits: BF16 as uint16, F8 as uint8, and F4 and F6 as uint8 with the last
axis counted in bytes (F4: two codes a byte, the first in the low bits).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.errors import DataError, DecodeError, QuantizedTypeError
from qnumba.inputs import as_array
from qnumba.io.checkpoint import KEY, entries_text, entry_of, pack_qarray, tensor_layout
from qnumba.io.files import TensorFile, atomic_write, map_bytes, require_named, write_array
from qnumba.io.safetensors_header import (
    DTYPES,
    NAME_OF_DTYPE,
    Slot,
    TensorInfo,
    build_header,
    parse_header,
    stored_shape,
)
from qnumba.qarray import QArray

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray


class SafetensorsFile(TensorFile[Slot]):
    """A safetensors file, opened without reading its tensors.

    A mapping from tensor names, in the order of their bytes, to read-only arrays that look straight
    into the mapped file: nothing is copied, and the arrays stay valid after the file is closed.

    Parameters
    ----------
    path : path-like
        The file. The header is checked whole before anything else is read or allocated.

    Attributes
    ----------
    metadata : dict of str to str
        The free-form part of the header, empty if there is none.

    Raises
    ------
    DecodeError
        Not a safetensors file, or one whose header contradicts itself or the file.
    OSError
        The file cannot be opened.

    Examples
    --------
    >>> with SafetensorsFile("model.safetensors") as f:  # doctest: +SKIP
    ...     for name in f:
    ...         print(name, f.info(name), f[name].max())
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        data = map_bytes(self.path)
        try:
            begin, self._slots, self.metadata = parse_header(data)
        except ValueError as error:
            raise DecodeError(f"{self.path}: {error}") from error
        self._data = data[begin:]

    def info(self, name: str) -> TensorInfo:
        """Dtype name, shape in elements and bytes of one tensor, from the header alone."""
        return self._slot(name).info

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Look into one tensor: a read-only array, not copied (see the module for BF16, F8, F4)."""
        (dtype, shape, nbytes), begin = self._slot(name)
        raw = self._mapped(name)[begin : begin + nbytes]
        if dtype == "BOOL" and raw.size and raw.max() > 1:
            raise DecodeError(f"{self.path}: {name!r} is BOOL but holds bytes other than 0 and 1")
        return np.ndarray(stored_shape(dtype, shape), DTYPES[dtype].storage, buffer=raw)

    def view(self, name: str) -> NDArray[Any]:
        """Look into one tensor, BF16 and F8 as dtypes of the optional package ml_dtypes.

        Raises
        ------
        ImportError
            The tensor needs ml_dtypes and it is not installed.
        """
        ml_name = DTYPES[self.info(name).dtype].ml_name
        if ml_name is None:
            return self[name]
        import ml_dtypes  # noqa: PLC0415 - optional, and only these dtypes need it

        return self[name].view(getattr(ml_dtypes, ml_name))


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Name the safetensors dtype of a NumPy or ml_dtypes dtype: ``float32`` is ``"F32"``.

    Raises
    ------
    QuantizedTypeError
        The format has no such dtype.
    """
    name = NAME_OF_DTYPE.get(dtype.name)
    if name is None:
        raise QuantizedTypeError(
            f"safetensors has no dtype for {dtype}; convert the array to one of "
            f"{', '.join(sorted(NAME_OF_DTYPE))}"
        )
    return name


def save_safetensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write arrays that are all at hand.

    Parameters
    ----------
    path : path-like
        The file to write; it is replaced only when all is written.
    arrays : mapping of str to array_like or QArray
        An array gets the dtype :func:`dtype_name` gives it. A QArray becomes the tensors of
        :mod:`qnumba.io.checkpoint`, whose ``unpack_qarray`` reads it back.
    metadata : mapping of str to str, optional
        The free-form part of the header.

    Raises
    ------
    QuantizedTypeError
        `arrays` is no mapping, or holds a masked array or a dtype the format lacks.
    DataError
        A name that is no text, two tensors of one name, a header too large.
    OSError
        The file cannot be written.
    """
    require_named(arrays)
    quantized = {name: q for name, q in arrays.items() if isinstance(q, QArray)}
    tensors = {name: as_array(x) for name, x in arrays.items() if name not in quantized}
    layout = {name: (dtype_name(array.dtype), array.shape) for name, array in tensors.items()}
    entries = {name: entry_of(q) for name, q in quantized.items()}
    for name, entry in entries.items():
        made = tensor_layout(name, entry.plan)
        if twice := made.keys() & layout.keys():
            raise DataError(f"{name!r} becomes tensors of which {min(twice)!r} is there already")
        layout |= made
        tensors |= pack_qarray(name, quantized[name])
    if entries and KEY in (metadata or {}):
        raise DataError(f"metadata has {KEY!r}, which the quantized arrays need; leave it away")
    if entries:
        metadata = {**(metadata or {}), KEY: entries_text(entries)}
    write_safetensors(path, layout, tensors.items(), metadata)


def write_safetensors(
    path: str | os.PathLike[str],
    layout: Mapping[str, tuple[str, tuple[int, ...]]],
    tensors: Iterable[tuple[str, NDArray[Any]]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a safetensors file tensor by tensor, holding one of them in memory at a time.

    Parameters
    ----------
    path : path-like
        The file to write; it is replaced only when all is written.
    layout : mapping of name to (dtype name, shape)
        All tensors. Shapes count elements, also for F4 and F6.
    tensors : iterable of (name, array)
        Each tensor of `layout` once, in any order: a generator makes them one by one. Any strides
        and byte order; BF16 and F8 as unsigned integers or ml_dtypes, F4 and F6 as packed bytes.
    metadata : mapping of str to str, optional
        The free-form part of the header.

    Raises
    ------
    DataError
        A name that is no text; a tensor that does not fit its layout, is missing, or comes twice;
        a header too large.
    QuantizedTypeError
        A tensor is a quantized or masked array.
    OSError
        The file cannot be written.
    """
    try:
        header, offsets = build_header(layout, metadata)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    missing = dict.fromkeys(layout)
    with atomic_write(path) as file:
        file.write(header)
        for name, array in tensors:
            if name not in missing:
                raise DataError(f"tensor {name!r} is not in the layout, or came before")
            del missing[name]
            file.seek(offsets[name])
            dtype, shape = layout[name]
            write_array(file, _as_stored(name, array, dtype, shape), DTYPES[dtype].storage)
        if missing:
            raise DataError(
                f"{len(missing)} tensors were not given, such as {next(iter(missing))!r}"
            )


def _as_stored(name: str, array: NDArray[Any], dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Check a tensor against its layout and view ml_dtypes as the integers that hold them."""
    array, row, wanted = as_array(array), DTYPES[dtype], stored_shape(dtype, shape)
    if array.dtype.name not in {row.storage.name, row.ml_name} or array.shape != wanted:
        raise DataError(
            f"tensor {name!r} was announced as {dtype} {list(shape)}, so an array of "
            f"{row.storage.name} {list(wanted)}, but is {array.dtype.name} {list(array.shape)}"
        )
    return array.view(row.storage) if array.dtype.name == row.ml_name else array
