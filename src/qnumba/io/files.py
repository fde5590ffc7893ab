"""Files that appear whole or not at all, and files read without copying them."""

from __future__ import annotations

import difflib
import errno
import math
import mmap
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

import numpy as np

from qnumba.errors import DataError, QuantizedTypeError, cut
from qnumba.formats import MAX_RANK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from typing_extensions import Self

CHUNK = 1 << 18  # elements per write of an array: bounds the memory of strided and swapped arrays
MAX_INT = 2**63 - 1  # what an array index can count


S = TypeVar("S")


class TensorFile(Mapping[str, Any], Generic[S]):
    """What the readers of files of named tensors share: names, closing, and a mapped file.

    A reader fills ``_slots``, what it knows of each tensor in the order of their bytes, and
    ``_data``, the mapped bytes, which are None once the file is closed.
    """

    path: Path
    _slots: dict[str, S]
    _data: NDArray[np.uint8] | None

    def __iter__(self) -> Iterator[str]:
        """Go through the names of the tensors in the order of their bytes in the file."""
        return iter(self._slots)

    def __len__(self) -> int:
        """Count the tensors."""
        return len(self._slots)

    def __contains__(self, name: object) -> bool:
        """Say whether there is a tensor of this name, without looking at its data."""
        return name in self._slots

    def __repr__(self) -> str:
        """Show the path and the number of tensors."""
        return f"{type(self).__name__}({str(self.path)!r}, {len(self)} tensors)"

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Let go of the file. What was taken from it keeps it mapped until that is gone."""
        self._data = None

    def _slot(self, name: str) -> S:
        if name not in self._slots:
            near = difflib.get_close_matches(name, self._slots, n=1)
            hint = f"did you mean {show(near[0])}?" if near else f"it has {len(self)} others"
            raise KeyError(f"{self.path} has no tensor {name!r}; {hint}")
        return self._slots[name]

    def _mapped(self, name: str) -> NDArray[np.uint8]:
        if self._data is None:
            raise ValueError(f"{self.path} is closed; read {name!r} inside the with block")
        return self._data


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open `path` for writing such that it is replaced only when the block ends without error.

    The bytes go to a temporary file in the same directory, are flushed to the disk, and are renamed
    over `path`. On any exception, Ctrl-C included, the temporary file is removed and what was at
    `path` before is untouched. A symbolic link is followed; the mode of an existing file is kept.

    Parameters
    ----------
    path : path-like
        Where the file is to appear. Its directory must exist.

    Yields
    ------
    binary file
        Seekable, open for writing.

    Raises
    ------
    OSError
        `path` is something else than a file, the directory is missing or not writable, or the disk
        is full: ``filename`` is then `path`.
    """
    target = Path(os.path.realpath(path))  # links in a loop stay links, on every Python
    if os.path.lexists(target) and not target.is_file():
        raise FileExistsError(f"{path} is not a regular file; give the name of a file to write")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the directory of {path} does not exist; create it first")
    temporary = target.with_name(f".qnumba-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in {None, str(temporary)}:
            error.filename = str(path)
        raise
    _sync_directory(target.parent)


def _sync_directory(directory: Path) -> None:
    """Make a rename in `directory` survive a power cut, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_array(file: BinaryIO, array: NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Write the elements of `array` in C order as `dtype`, whatever its strides and byte order.

    At most `CHUNK` elements are copied at a time. `dtype` may differ from the array's own in byte
    order only.
    """
    if array.size == 0:
        return
    chunks = np.nditer(
        [array],
        flags=["external_loop", "buffered"],
        op_flags=[["readonly"]],
        op_dtypes=[dtype],
        order="C",
        casting="equiv",
        buffersize=CHUNK,
    )
    file.writelines(np.ascontiguousarray(chunk).data for chunk in chunks)


def map_bytes(path: Path) -> NDArray[np.uint8]:
    """Map a file as one read-only array of bytes.

    The map lives as long as any array that looks into it.
    The file must not be cut short meanwhile (the system then stops the process).

    Raises
    ------
    OSError
        The file cannot be opened, or is a pipe or a device, which cannot be mapped.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # opening a pipe would wait for a writer
        raise OSError(errno.EINVAL, "not a regular file; save it to one first", str(path))
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def require_named(arrays: object) -> None:
    """Refuse what does not give arrays names that a file can hold.

    Raises
    ------
    QuantizedTypeError
        It is no mapping.
    DataError
        A name is no text.
    """
    if not isinstance(arrays, Mapping):
        given = type(arrays).__name__
        raise QuantizedTypeError(f"arrays come with their names, as in {{'w': w}}; got a {given}")
    for name in arrays:
        check_name(name)


def check_name(name: object) -> None:
    """Refuse what is no text, and half a surrogate pair, which UTF-8 cannot hold."""
    if not isinstance(name, str):
        raise DataError(f"names must be text (str), not {show(name)}")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{show(name)} is no text that UTF-8 can hold: {error.reason}") from error


def count_bytes(shape: tuple[int, ...], itemsize: int) -> int:
    """Bytes of an array that a file claims to hold.

    Raises
    ------
    ValueError
        NumPy could not hold or count it, even if it is empty.
    """
    if len(shape) > MAX_RANK:
        raise ValueError(f"{len(shape)} axes; at most {MAX_RANK} are possible")
    if math.prod(extent for extent in shape if extent) * itemsize > MAX_INT:
        raise ValueError(f"shape {list(shape)} is larger than any memory")
    return math.prod(shape) * itemsize


def show(name: object) -> str:
    """Quote a name for a message, cut to a length one can read."""
    return cut(repr(name))
