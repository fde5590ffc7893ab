"""Tensors of burnpack files: what a tensor's bytes are, and what bytes a tensor becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.errors import DecodeError, QuantizationError, QuantizedTypeError, UnsupportedSchemeError
from qnumba.inputs import as_array
from qnumba.io.burnpack_metadata import PLAIN_DTYPES, BurnScheme, from_burn, to_burn
from qnumba.io.files import show
from qnumba.layout import Plan, plan
from qnumba.params import Params
from qnumba.qarray import QArray
from qnumba.serialize.record import encode_sections, from_record, record_size, section_sizes
from qnumba.validate import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

BYTE = 8  # bits

_NAMES = {dtype.name: name for name, dtype in PLAIN_DTYPES.items() if name not in {"BF16", "Bool"}}
_NAMES |= {"bfloat16": "BF16", "bool": "Bool"}


class RawTensor(NamedTuple):
    """A tensor as it is in a file: bytes and description. Written back, it gives the same bytes."""

    dtype: str | BurnScheme
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    param_id: int | None = None


def record_sizes(dtype: BurnScheme, shape: tuple[int, ...]) -> set[int]:
    """Return the lengths a record may have; none where the scheme cannot be used here."""
    try:
        scheme = from_burn(dtype._replace(mode="Symmetric"))  # a table changes no size
        require(scheme, shape, "float32")
    except QuantizationError:
        return set()
    layout = plan(scheme, shape)
    return {record_size(layout), record_size(layout) - _padding(layout)}


def _padding(layout: Plan) -> int:
    """Return the bytes of padding in words of 8-bit codes, which burn leaves away."""
    scheme = layout.scheme
    if scheme.store != "packed_u32" or layout.code_bits != BYTE or scheme.pack_axis:
        return 0
    return section_sizes(layout)[0] - layout.size


def decode(tensor: RawTensor) -> Any:
    """Return what a tensor holds: a QArray, or a read-only array that looks into its bytes."""
    if isinstance(tensor.dtype, str):
        found: NDArray[Any] = tensor.data.view(np.uint8)
        if tensor.dtype == "Bool":
            if found.size and found.max() > 1:
                raise DecodeError("Bool holds bytes other than 0 and 1")
            return found.view(np.bool_).reshape(tensor.shape)
        return np.ndarray(tensor.shape, PLAIN_DTYPES[tensor.dtype], buffer=found)
    if tensor.dtype.mode == "Lookup":
        raise DecodeError(
            "a lookup scheme, whose table burn does not store; with the table known, read "
            "QArray.from_record(file.raw(name).data, scheme, shape)"
        )
    scheme = from_burn(tensor.dtype)
    require(scheme, tensor.shape, "float32")
    layout = plan(scheme, tensor.shape)
    words, params = from_record(_padded(tensor.data, layout).data, layout)
    return QArray(layout, words, params, source_dtype="float32")


def _padded(data: NDArray[np.uint8], layout: Plan) -> NDArray[np.uint8]:
    """Return a record as ``from_record`` reads it: rows of 8-bit codes padded to whole words."""
    if data.size == record_size(layout):
        return data
    length = layout.packed[1]
    rows = np.zeros((layout.size // length, -(-length // 4) * 4), np.uint8)
    rows[:, :length] = data[: layout.size].reshape(-1, length)
    return np.concatenate([rows.reshape(-1), data[layout.size :]])


def describe(name: str, tensor: Any) -> tuple[str | BurnScheme, tuple[int, ...], int, int | None]:
    """Return dtype, shape, bytes and parameter id of what is to be written."""
    if isinstance(tensor, RawTensor):
        data = tensor.data
        if data.dtype != np.uint8 or data.ndim != 1:
            raise ValueError(f"the data of {show(name)} are {data.dtype}, not a row of bytes")
        return tensor.dtype, tensor.shape, data.size, tensor.param_id
    if isinstance(tensor, QArray):
        layout = plan(tensor.scheme, tensor.shape)
        dtype = to_burn(tensor.scheme)
        _require_readable(name, layout)
        return dtype, tensor.shape, record_size(layout) - _padding(layout), None
    array = as_array(tensor)
    found = _NAMES.get(array.dtype.name)
    if found is None:
        known = ", ".join(_NAMES)
        raise QuantizedTypeError(f"{show(name)} is {array.dtype}; burn has {known}")
    return found, array.shape, array.nbytes, None


def _require_readable(name: str, layout: Plan) -> None:
    """Refuse what burn would misread: it takes the words of all rows for one stream of codes."""
    per_word = 32 // layout.code_bits
    row, lines = layout.packed[1], layout.packed[0] * layout.packed[2]
    ragged = lines > 1 and row % per_word
    if layout.scheme.store == "packed_u32" and ragged and not _padding(layout):
        fix = "use store=native, or pad the packed axis"
        raise UnsupportedSchemeError(
            f"burn would misread {show(name)}: {row} codes of {layout.code_bits} bits are no whole "
            f"number of 32-bit words, and it reads all rows as one stream; {fix}",
            field="store",
            value=layout.scheme.store,
            fix=fix,
        )


def parts(tensor: Any) -> list[NDArray[Any]]:
    """Return the arrays whose bytes, one after another, are a tensor's."""
    if isinstance(tensor, RawTensor):
        return [tensor.data]
    if not isinstance(tensor, QArray):
        array = as_array(tensor)
        return [array.view(np.uint16) if array.dtype.name == "bfloat16" else array]
    layout = plan(tensor.scheme, tensor.shape)
    params = Params(tensor.scales, tensor.global_scale, tensor.zero_points)
    words, *rest = encode_sections(layout, tensor.words, params)
    codes = np.frombuffer(words, np.uint8)
    if _padding(layout):
        length = layout.packed[1]
        codes = codes.reshape(layout.size // length, -1)[:, :length]
    return [codes, *(np.frombuffer(part, np.uint8) for part in rest)]
