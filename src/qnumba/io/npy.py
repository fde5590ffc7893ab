"""Read and write NumPy's .npy files: mapped, never unpickled, and whole or not at all."""

from __future__ import annotations

import tokenize
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from qnumba.errors import DecodeError, QuantizedTypeError
from qnumba.inputs import as_array
from qnumba.io.files import MAX_INT, atomic_write, count_bytes, map_bytes, show, write_array

if TYPE_CHECKING:
    import os

    from numpy.typing import ArrayLike, NDArray

NUMBERS = "biufc"  # dtype kinds
USER_DEFINED = 2  # what dtype.isbuiltin is for dtypes of other packages
MAX_HEADER = 1 << 17  # bytes; longer than any that NumPy parses

_READ_HEADER = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
# what NumPy's header parser lets through for text that is no header
_PARSE_ERRORS = (
    ValueError,
    TypeError,
    SyntaxError,
    LookupError,
    AttributeError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)


def read_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Map a .npy file as a read-only array: nothing is copied, nothing is unpickled.

    Parameters
    ----------
    path : path-like
        A file written by ``numpy.save``.

    Returns
    -------
    numpy.ndarray
        Of any plain numeric or boolean dtype and byte order, C or Fortran order as in the file.

    Raises
    ------
    DecodeError
        Not a .npy file, one of Python objects or records, or one cut short or with bytes too many.
    OSError
        The file cannot be opened.
    """
    path = Path(path)
    data = map_bytes(path)
    start = BytesIO(data[:MAX_HEADER].data)
    try:
        shape, fortran, dtype = _read_header(start)
        wanted = count_bytes(shape, dtype.itemsize)
    except ValueError as error:
        raise DecodeError(f"{path} is not a .npy file of numbers: {error}") from error
    raw = data[start.tell() :]
    if raw.size != wanted:
        raise DecodeError(
            f"{path} should hold {wanted} bytes of {dtype} {list(shape)}, but holds {raw.size}"
        )
    return np.ndarray(shape, dtype, buffer=raw, order="F" if fortran else "C")


def write_npy(path: str | os.PathLike[str], array: ArrayLike) -> None:
    """Write an array of numbers as a .npy file, which is replaced only when all is written.

    Raises
    ------
    QuantizedTypeError
        A quantized or masked array, or a dtype that .npy cannot hold: Python objects, and bfloat16
        or float8 of ml_dtypes.
    OSError
        The file cannot be written.
    """
    array = as_array(array)
    # ml_dtypes (isbuiltin 2) would come back as raw bytes without a name, or not at all
    if array.dtype.kind not in NUMBERS or array.dtype.isbuiltin == USER_DEFINED:
        raise QuantizedTypeError(
            f".npy cannot hold {array.dtype}; convert to float32, or write .safetensors"
        )
    header = npy.header_data_from_array_1_0(array)
    with atomic_write(path) as file:
        npy.write_array_header_1_0(file, header)
        write_array(file, array.T if header["fortran_order"] else array, array.dtype)


def _read_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and dtype, and refuse those that cannot be mapped as numbers."""
    version = npy.read_magic(file)
    if version not in _READ_HEADER:
        raise ValueError(f"version {version} holds records, or is not known")
    try:
        shape, fortran, dtype = _READ_HEADER[version](file)
    except _PARSE_ERRORS as error:  # whose text may be the whole header
        raise ValueError("its header is damaged or was cut short") from error
    if dtype.kind not in NUMBERS:
        raw = dtype.kind == "V" and dtype.names is None
        hint = "; bfloat16 and float8 lose their names in .npy: use .safetensors" if raw else ""
        raise ValueError(f"its dtype is {show(str(dtype))}{hint}")
    if any(type(extent) is not int or not 0 <= extent <= MAX_INT for extent in shape):
        raise ValueError(f"shape {show(shape)} must be of integers from 0 to 2**63 - 1")
    return shape, bool(fortran), dtype
