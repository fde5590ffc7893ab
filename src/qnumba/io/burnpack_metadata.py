"""The metadata of a burnpack file: CBOR maps, the dtypes in them, and the rules they must keep.

What is read becomes ``Entry`` and ``BurnScheme`` tuples that keep all the file says, so that it is
written back byte for byte. Everything here raises ValueError, but for schemes that burn cannot
express; the reader says which file it was.
"""

from __future__ import annotations

import importlib
import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.errors import QuantizationError, UnsupportedSchemeError
from qnumba.formats import MAX_RANK, SCALES, VALUES
from qnumba.io.files import MAX_INT, show
from qnumba.scheme import Scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

MAX_DEPTH = 128  # of nested CBOR; burn's limit
MAX_EXTENT = 255  # burn counts a block extent in one byte
EXTENTS = 5  # burn always writes five, the unused ones as 1
MAX_U64 = 2**64 - 1
OLD_KEYS = {"param", "level"}  # of schemes up to burn 0.21

PLAIN_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "Bool": np.dtype("u1"),
}
STORES = {"Native": "native", "PackedU32": "packed_u32", "PackedNative": "packed_native"}
STORE_NAMES = {store: name for name, store in STORES.items()}
MODES = {"Symmetric": "symmetric", "Lookup": "lookup"}
# What keeps a scheme out of a file: field, test, fault and fix.
REFUSED: tuple[tuple[str, Callable[[Scheme], bool], str, str], ...] = (
    (
        "mode",
        lambda scheme: scheme.mode == "affine",
        "it has no zero points",
        "use a symmetric scheme, or write safetensors",
    ),
    (
        "mode",
        lambda scheme: scheme.mode == "lookup",
        "its files have no place for the table",
        "write safetensors, or use a symmetric scheme",
    ),
    (
        "store",
        lambda scheme: scheme.store not in STORE_NAMES,
        "it packs codes in words of 32 bits only",
        "use store=packed_u32 or native",
    ),
    (
        "block",
        lambda scheme: max(scheme.block or (1,)) > MAX_EXTENT,
        f"a block extent is at most {MAX_EXTENT}",
        "use a smaller block, or write safetensors",
    ),
)
SCALAR_KINDS: dict[str, type] = {"Int": int, "UInt": int, "Float": float, "Bool": bool}


class BurnScheme(NamedTuple):
    """A scheme as burn writes it. ``tensor`` is None where burn's user set no per-tensor level."""

    value: str
    store: str
    pack_axis: int
    mode: str
    tensor: str | None
    block: tuple[int, ...] | None
    block_scale: str | None


class Entry(NamedTuple):
    """What the metadata say about one tensor. Offsets count from the start of the data section."""

    dtype: str | BurnScheme
    shape: tuple[int, ...]
    begin: int
    end: int
    param_id: int | None = None


class Scalar(NamedTuple):
    """A number beside the tensors, with the kind burn has for it: Int, UInt, Float or Bool."""

    kind: str
    value: float


class Metadata(NamedTuple):
    """All that stands before the data section."""

    tensors: dict[str, Entry]
    texts: dict[str, str]
    scalars: dict[str, Scalar]


def cbor() -> ModuleType:
    """Return the CBOR library.

    Raises
    ------
    ImportError
        It is not installed.
    """
    try:
        return importlib.import_module("cbor2")  # an extra, needed only here
    except ImportError as error:
        raise ImportError('burnpack files need cbor2: pip install "qnumba[burn]"') from error


def to_burn(scheme: Scheme) -> BurnScheme:
    """Return a scheme as burn writes it.

    Raises
    ------
    UnsupportedSchemeError
        If burn has no way to say it.
    """
    for field, refused, fault, fix in REFUSED:
        if refused(scheme):
            message = f"burn cannot express {str(scheme)!r}: {fault}; {fix}"
            given = getattr(scheme, field)
            raise UnsupportedSchemeError(message, field=field, value=given, fix=fix)
    return BurnScheme(
        scheme.value,
        STORE_NAMES[scheme.store],
        scheme.pack_axis,
        "Symmetric",
        scheme.tensor_scale,
        scheme.block,
        scheme.block_scale,
    )


def from_burn(found: BurnScheme) -> Scheme:
    """Return a scheme of a file as a Scheme.

    Raises
    ------
    SchemeError
        If it cannot be used here; a lookup scheme lacks its table, which burn does not store.
    """
    names: dict[str, Any] = {"mode": MODES[found.mode], "store": STORES[found.store]}
    names |= {"tensor_scale": found.tensor, "block": found.block, "block_scale": found.block_scale}
    return Scheme(found.value, pack_axis=found.pack_axis, **names)  # type: ignore[arg-type]


def parse_metadata(raw: bytes) -> Metadata:
    """Read and check the CBOR of a file, all but the sizes of quantized tensors."""
    cbor2 = cbor()
    stream = io.BytesIO(raw)
    try:
        found = cbor2.load(stream, max_depth=MAX_DEPTH, allow_duplicate_keys=False)
    except (cbor2.CBORError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(f"the metadata are no CBOR: {error}") from error
    if stream.tell() != len(raw):
        raise ValueError(f"{len(raw) - stream.tell()} bytes of the metadata belong to nothing")
    parts = _map(found, "the metadata", optional=("tensors", "metadata", "scalars"))
    tensors = _texts(parts.get("tensors", {}), "tensors")
    texts = _texts(parts.get("metadata", {}), "metadata")
    scalars = _texts(parts.get("scalars", {}), "scalars")
    for key, text in texts.items():
        _require(isinstance(text, str), f"metadata {show(key)} is not text: {show(text)}")
    return Metadata(
        {name: _entry(name, entry) for name, entry in tensors.items()},
        texts,
        {name: _scalar(name, scalar) for name, scalar in scalars.items()},
    )


def build_metadata(metadata: Metadata) -> bytes:
    """Return the CBOR that ``parse_metadata`` reads, byte for byte what burn writes."""
    cbor2 = cbor()
    found: dict[str, Any] = {
        "tensors": {name: _descriptor(metadata.tensors[name]) for name in sorted(metadata.tensors)}
    }
    if metadata.texts:
        found["metadata"] = {name: metadata.texts[name] for name in sorted(metadata.texts)}
    if metadata.scalars:
        scalars = sorted(metadata.scalars.items())
        found["scalars"] = {name: {kind: value} for name, (kind, value) in scalars}

    def shortest(encoder: Any, number: float) -> None:
        encoder.write(cbor2.dumps(number, canonical=True))

    raw: bytes = cbor2.dumps(found, encoders={float: shortest})
    return raw


def as_scalar(name: str, value: object) -> Scalar:
    """Return a number with the kind burn gives it: UInt for integers of at least 0."""
    if not isinstance(value, Scalar):
        value = value.item() if isinstance(value, np.generic) else value
        kinds = {bool: "Bool", float: "Float", int: "Int"}
        _require(type(value) in kinds, f"scalar {show(name)} is no number: {show(value)}")
        kind = kinds[type(value)]
        unsigned = kind == "Int" and value >= 0  # type: ignore[operator]
        value = Scalar("UInt" if unsigned else kind, value)  # type: ignore[arg-type]
    return _scalar(name, {value.kind: value.value})


def _descriptor(entry: Entry) -> dict[str, Any]:
    found = {"dtype": _dtype_map(entry.dtype), "shape": list(entry.shape)}
    found["data_offsets"] = [entry.begin, entry.end]
    return found if entry.param_id is None else found | {"param_id": entry.param_id}


def _dtype_map(dtype: str | BurnScheme) -> Any:
    if isinstance(dtype, str):
        return {"Bool": "Native"} if dtype == "Bool" else dtype
    store = dtype.store if dtype.store == "Native" else {dtype.store: dtype.pack_axis}
    block: dict[str, Any] | None = None
    if dtype.block is not None:
        extents = () if dtype.block == (1,) else dtype.block
        storage = [*extents, *[1] * (EXTENTS - len(extents))]
        block = {"size": {"storage": storage, "len": len(extents)}, "dtype": dtype.block_scale}
    scheme = {"value": dtype.value, "store": store, "mode": dtype.mode}
    return {"QFloat": scheme | {"tensor": dtype.tensor, "block": block}}


def _entry(name: str, found: object) -> Entry:
    try:
        parts = _map(found, "it", ("dtype", "shape", "data_offsets"), ("param_id",))
        shape = _integers(parts["shape"], "shape")
        _require(len(shape) <= MAX_RANK, f"{len(shape)} axes; at most {MAX_RANK} are possible")
        offsets = _integers(parts["data_offsets"], "data_offsets")
        fits = len(offsets) == 2 and offsets[0] <= offsets[1]  # noqa: PLR2004 - begin and end
        _require(fits, f"data_offsets are not a begin and an end: {show(parts['data_offsets'])}")
        identity = parts.get("param_id")
        known = identity is None or (type(identity) is int and 0 <= identity <= MAX_U64)
        _require(known, f"param_id {show(identity)} is not of 64 bits")
        return Entry(_dtype(parts["dtype"]), shape, offsets[0], offsets[1], identity)
    except ValueError as error:
        raise ValueError(f"tensor {show(name)}: {error}") from error


def _dtype(found: object) -> str | BurnScheme:
    if found == {"Bool": "Native"}:
        return "Bool"
    if isinstance(found, str) and found in PLAIN_DTYPES and found != "Bool":
        return found
    if not isinstance(found, dict) or list(found) != ["QFloat"]:
        known = ", ".join(PLAIN_DTYPES)
        raise ValueError(f"unknown dtype {show(found)}; known are {known} and QFloat")
    scheme = found["QFloat"]
    if isinstance(scheme, dict) and scheme.keys() & OLD_KEYS:
        raise ValueError(
            "its scheme has the keys of burn 0.21 and before, "
            f"{', '.join(map(show, scheme))}; load and save the file with burn 0.22 or later"
        )
    return _scheme(_map(scheme, "its scheme", ("value", "store", "mode", "tensor", "block")))


def _scheme(parts: dict[str, Any]) -> BurnScheme:
    store, axis = parts["store"], 0
    if isinstance(store, dict) and len(store) == 1:
        (store, axis), *_ = store.items()
        _require(store != "Native", f"unknown store {show(parts['store'])}")
    _require(type(axis) is int and 0 <= axis < MAX_RANK, f"packed axis {show(axis)} is no axis")
    _one_of("value", parts["value"], [name for name in VALUES if not name.startswith("U")])
    _one_of("store", store, STORES)
    _one_of("mode", parts["mode"], MODES)
    packed = store == "Native" or isinstance(parts["store"], dict)
    _require(packed, f"the store {show(store)} says no packed axis")
    if parts["tensor"] is not None:
        _one_of("scale dtype", parts["tensor"], SCALES)
    block, block_scale = None, None
    if parts["block"] is not None:
        level = _map(parts["block"], "its block", ("size", "dtype"))
        block, block_scale = _extents(level["size"]), level["dtype"]
        _one_of("scale dtype", block_scale, SCALES)
    names = parts["value"], store, axis, parts["mode"], parts["tensor"], block, block_scale
    return BurnScheme(*names)


def _extents(found: object) -> tuple[int, ...]:
    size = _map(found, "its block size", ("storage", "len"))
    storage = _integers(size["storage"], "storage")
    count = size["len"]
    fits = len(storage) == EXTENTS and type(count) is int and 0 <= count <= EXTENTS
    legal = fits and all(1 <= extent <= MAX_EXTENT for extent in storage)
    legal = legal and set(storage[count:]) <= {1} and (count == 0 or storage[0] > 1)
    _require(legal, f"its block size is none that burn makes: {show(found)}")
    return storage[:count] or (1,)


def _scalar(name: str, found: object) -> Scalar:
    what = f"scalar {show(name)}"
    _require(isinstance(found, dict) and len(found) == 1, f"{what} is not one number")
    ((kind, value),) = found.items()  # type: ignore[attr-defined]
    _one_of("kind of scalar", kind, SCALAR_KINDS)
    _require(type(value) is SCALAR_KINDS[kind], f"{what} is not of kind {kind}: {show(value)}")
    lo, hi = {"Int": (-(2**63), MAX_INT), "UInt": (0, MAX_U64)}.get(kind, (None, None))
    _require(lo is None or lo <= value <= hi, f"{what} is outside 64 bits: {show(value)}")
    return Scalar(kind, value)


def _map(
    found: object, what: str, keys: Iterable[str] = (), optional: Iterable[str] = ()
) -> dict[str, Any]:
    """Return a map that has all of ``keys`` and nothing but those and ``optional``."""
    names = _texts(found, what)
    missing = set(keys) - names.keys()
    _require(not missing, f"{what} lacks {', '.join(map(show, sorted(missing)))}")
    unknown = names.keys() - set(keys) - set(optional)
    _require(not unknown, f"{what} has {', '.join(map(show, sorted(unknown)))}, unknown to it")
    return names


def _texts(found: object, what: str) -> dict[str, Any]:
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ValueError(f"{what} should be a map from text, not {show(found)}")
    return found


def _integers(found: object, what: str) -> tuple[int, ...]:
    # the exact type: True is an int to isinstance, and a float would be rounded
    if not isinstance(found, list) or not all(type(n) is int and 0 <= n <= MAX_INT for n in found):
        raise ValueError(f"{what} must be a list of integers from 0 to 2**63 - 1: {show(found)}")
    return tuple(found)


def _one_of(what: str, found: object, names: Iterable[str]) -> None:
    names = list(names)
    known = isinstance(found, str) and found in names
    _require(known, f"unknown {what} {show(found)}; known are {', '.join(names)}")


def _require(holds: object, message: str) -> None:
    if not holds:
        raise ValueError(message)


def show_dtype(dtype: str | BurnScheme) -> str:
    """Return a dtype as text: ``F32``, or a scheme's text form where it has one."""
    if isinstance(dtype, str):
        return dtype
    try:
        return str(from_burn(dtype))
    except QuantizationError:
        return f"QFloat {tuple(dtype)}"
