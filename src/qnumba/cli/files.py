"""The files a command reads, whatever their format, as one list of arrays not yet read."""

from __future__ import annotations

import contextlib
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.cli.show import label
from qnumba.errors import DataError, DecodeError
from qnumba.io.checkpoint import Entry, entry_of, read_entries, tensor_layout, unpack_qarray
from qnumba.io.files import map_bytes
from qnumba.io.npy import read_npy
from qnumba.io.safetensors import SafetensorsFile
from qnumba.io.safetensors_header import BYTE, DTYPES
from qnumba.qarray import QArray
from qnumba.serialize.container import MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray

# how NumPy calls the dtypes of safetensors; those narrower than a byte keep their names
NUMPY_NAMES = {
    name: (row.ml_name or row.storage.name) if row.bits >= BYTE else name
    for name, row in DTYPES.items()
}
NAMES_SHOWN = 3


class UsageError(Exception):
    """A command line that cannot be carried out, whatever is in the files."""


class Item(NamedTuple):
    """One array of a file, from what the file says before its data are read.

    A quantized array has an ``entry``, and then ``dtype`` and ``shape`` are those of the array it
    was made from. ``parts`` are the tensors of a safetensors file that hold the array.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    load: Callable[[], Any]
    entry: Entry | None = None
    parts: tuple[str, ...] = ()


class Source(NamedTuple):
    """An open file: its ending, its arrays, and the file itself if it is a safetensors file."""

    path: Path
    ending: str
    items: list[Item]
    tensors: SafetensorsFile | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(item.nbytes for item in self.items)


@contextlib.contextmanager
def open_source(path: str) -> Iterator[Source]:
    """Open a file of any format by the ending of its name.

    Raises
    ------
    UsageError
        The ending is not one of READERS.
    DecodeError, OSError
        The file is damaged, or cannot be read.
    """
    with READERS[ending_of(path, READERS)](Path(path)) as source:
        yield source


def ending_of(path: str, endings: Collection[str]) -> str:
    """Return the ending of a file name, if it is one of those that are possible here."""
    ending = Path(path).suffix.lower()
    if ending not in endings:
        raise UsageError(f"the name {path!r} must end in {' or '.join(endings)}")
    return ending


def is_selected(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Say whether a name matches a pattern of `include`, if there are any, and no other."""
    wanted = not include or any(fnmatchcase(name, pattern) for pattern in include)
    return wanted and not any(fnmatchcase(name, pattern) for pattern in exclude)


def require_selected(source: Source, include: Sequence[str], exclude: Sequence[str]) -> None:
    """Refuse patterns that leave no array of a file.

    Raises
    ------
    DataError
        Naming the patterns, and some arrays.
    """
    names = [item.name for item in source.items]
    if not names or any(is_selected(name, include, exclude) for name in names):
        return
    given = (("--include", include), ("--exclude", exclude))
    patterns = " ".join(" ".join((option, *words)) for option, words in given if words)
    some = ", ".join(label(name) for name in names[:NAMES_SHOWN])
    more = f", and {len(names) - NAMES_SHOWN:,} more" * (len(names) > NAMES_SHOWN)
    raise DataError(f"{patterns} leaves no array of {source.path}, which has {some}{more}")


def _name_of(path: Path) -> str:
    """Return the name of the one array in a file, as text that every format can hold."""
    return path.stem.encode("utf-8", "backslashreplace").decode("utf-8")


@contextlib.contextmanager
def _open_npy(path: Path) -> Iterator[Source]:
    array = read_npy(path)
    item = Item(_name_of(path), array.dtype.name, array.shape, array.nbytes, lambda: array)
    yield Source(path, ".npy", [item])


@contextlib.contextmanager
def _open_container(path: Path) -> Iterator[Source]:
    data = map_bytes(path)
    if data[: len(MAGIC)].tobytes() != MAGIC:
        raise DecodeError(f"{path} is no .qnb file, as qnumba quantize writes them")
    try:
        q = QArray.from_bytes(data)
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from error
    item = Item(_name_of(path), q.source_dtype, q.shape, q.nbytes, lambda: q, entry_of(q))
    yield Source(path, ".qnb", [item])


@contextlib.contextmanager
def _open_safetensors(path: Path) -> Iterator[Source]:
    with SafetensorsFile(path) as file:
        entries = read_entries(file)
        quantized = {name: _quantized_item(file, name, entry) for name, entry in entries.items()}
        taken = {part for item in quantized.values() for part in item.parts}
        items = [
            quantized.get(name) or _plain_item(file, name)
            for name in file
            if name in quantized or name not in taken
        ]
        yield Source(path, ".safetensors", items, file)


READERS = {".npy": _open_npy, ".safetensors": _open_safetensors, ".qnb": _open_container}


def _quantized_item(file: SafetensorsFile, name: str, entry: Entry) -> Item:
    parts = tuple(tensor_layout(name, entry.plan))
    nbytes = sum(file.info(part).nbytes for part in parts)
    load = partial(unpack_qarray, file, name)
    return Item(name, entry.dtype, entry.plan.shape, nbytes, load, entry, parts)


def _plain_item(file: SafetensorsFile, name: str) -> Item:
    dtype, shape, nbytes = file.info(name)
    load = partial(_numbers, file, name)
    return Item(name, NUMPY_NAMES[dtype], shape, nbytes, load, parts=(name,))


def _numbers(file: SafetensorsFile, name: str) -> NDArray[Any]:
    """Return a tensor as an array of numbers; BF16 as float32, its exact superset, if need be."""
    if file.info(name).dtype != "BF16":
        return file[name]
    try:
        return file.view(name)
    except ImportError:
        return (file[name].astype(np.uint32) << np.uint32(16)).view(np.float32)
