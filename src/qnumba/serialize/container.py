"""The self-describing container: a header, then the sections of the array, aligned and checked."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from qnumba.errors import DecodeError, QuantizationError
from qnumba.formats import MAX_RANK
from qnumba.layout import plan as plan_of
from qnumba.scheme import Scheme
from qnumba.serialize import record
from qnumba.serialize.scales import flat_view
from qnumba.validate import as_shape, require

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from qnumba.layout import Plan
    from qnumba.params import Params
    from qnumba.serialize.record import Part

MAGIC = b"\x89QNB\r\n\x1a\n"  # a high byte and both line ends: a copy made as text is found at once
VERSION = 1
ALIGNMENT = 64
SECTIONS = (*record.SECTIONS, "table")
# magic, version, checksum, length, lengths of four texts, rank, 0, and (offset, length) by section
HEADER = struct.Struct("<8s2IQ4H2I10Q")
CHECKSUM = slice(12, 16)  # the one field that the checksum does not cover
SHOWN = 100  # characters that an error quotes of a text that may be anything


class Contents(NamedTuple):
    """What a container holds: the parts of a quantized array, and how it was made."""

    scheme: Scheme
    shape: tuple[int, ...]
    dtype: str
    words: NDArray[Any]
    params: Params
    options: str
    writer: str


class Layout(NamedTuple):
    """Where sections lie: (offset, size) of each, the gap before the first and before each, end."""

    places: list[tuple[int, int]]
    gaps: list[range]
    end: int


def to_bytes(
    plan: Plan,
    words: NDArray[Any],
    params: Params,
    dtype: str,
    *,
    options: str = "",
    writer: str | None = None,
) -> bytes:
    """Return the self-describing container of an array.

    Parameters
    ----------
    plan, words, params
        As for ``to_record``.
    dtype : str
        Name of the dtype of the array that was quantized.
    options : str
        How the codes were made, such as ``"rounding=even method=minmax"``, for the reader to know.
    writer : str, optional
        What writes it. Default: qnumba and its version.

    Returns
    -------
    bytes
        The layout is in docs/bytes.md.
    """
    parts = container_parts(plan, words, params, dtype, options=options, writer=writer)
    return b"".join(parts)


def container_parts(
    plan: Plan,
    words: NDArray[Any],
    params: Params,
    dtype: str,
    *,
    options: str = "",
    writer: str | None = None,
) -> list[Part]:
    """Return the pieces of ``to_bytes`` in order, for a file: the words are not copied."""
    writer = _this_writer() if writer is None else writer
    texts = [text.encode() for text in (str(plan.scheme), dtype, writer, options)]
    description = struct.pack(f"<{len(plan.shape)}Q", *plan.shape) + b"".join(texts)
    sections = [*record.encode_sections(plan, words, params), _table_bytes(plan)]
    layout = _lay_out(HEADER.size + len(description), [len(section) for section in sections])
    numbers = (len(plan.shape), 0, *sum(layout.places, ()))
    header = HEADER.pack(MAGIC, VERSION, 0, layout.end, *map(len, texts), *numbers)
    parts: list[Part] = [description]
    for gap, section in zip(layout.gaps, [b"", *sections], strict=True):
        parts += [bytes(len(gap)), section]
    checksum = struct.pack("<I", _checksum([header, *parts]))
    return [header[: CHECKSUM.start] + checksum + header[CHECKSUM.stop :], *parts]


def from_bytes(buffer: Buffer, *, copy: bool = False) -> Contents:
    """Read a self-describing container.

    Parameters
    ----------
    buffer : bytes-like
        One whole container and nothing else: bytes, a memoryview, an mmap, a numpy.memmap.
    copy : bool
        As for ``from_record``.

    Returns
    -------
    Contents

    Raises
    ------
    DecodeError
        If a single bit is not as it was written, or the contents contradict one another. The
        sizes a container claims are compared with its length before anything is allocated.
    """
    view = flat_view(buffer)
    lengths, rank, table = _read_header(view)
    texts_at = HEADER.size + 8 * rank
    start = texts_at + sum(lengths)
    if rank > MAX_RANK or start > len(view):
        message = (
            f"the header claims {rank} axes and texts of {lengths} bytes; at most {MAX_RANK} axes "
            f"and {len(view)} bytes are possible"
        )
        raise DecodeError(message)
    shape = struct.unpack_from(f"<{rank}Q", view, HEADER.size)
    scheme, dtype, writer, options = _read_texts(view[texts_at:start], lengths)
    plan = _read_plan(scheme, shape, dtype)
    sections = _read_sections(view, start, plan, table)
    words, params = record.decode_sections(plan, sections, copy=copy)
    if sections[-1] != _table_bytes(plan):
        raise DecodeError(f"the lookup table is not that of the scheme {scheme[:SHOWN]!r}")
    return Contents(plan.scheme, plan.shape, dtype, words, params, options, writer)


def _this_writer() -> str:
    from qnumba import __version__  # noqa: PLC0415 - qnumba itself imports this module

    return f"qnumba {__version__}"


def _table_bytes(plan: Plan) -> bytes:
    return b"" if plan.table is None else plan.table.astype("<f4").tobytes()


def _lay_out(start: int, sizes: Iterable[int]) -> Layout:
    """Return where sections go behind ``start``: in order, each at the next aligned offset."""
    at = _aligned(start)
    places, gaps = [], [range(start, at)]
    for size in sizes:
        offset = _aligned(at) if size else at
        places.append((offset, size) if size else (0, 0))
        gaps.append(range(at, offset))
        at = offset + size
    return Layout(places, gaps, at)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _checksum(parts: Sequence[Part]) -> int:
    """Return the CRC-32 of everything but the checksum's own field."""
    header, *rest = parts
    checksum = zlib.crc32(header[: CHECKSUM.start])
    for part in (header[CHECKSUM.stop :], *rest):
        checksum = zlib.crc32(part, checksum)
    return checksum


def _read_header(view: memoryview) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Return the texts' lengths, the rank and the section table, if length and checksum agree."""
    start = bytes(view[: len(MAGIC)])
    if start != MAGIC:
        message = (
            f"the bytes start with {start!r} and a container with {MAGIC!r}; read a record with "
            "from_record, and a file of another format with that format's reader"
        )
        raise DecodeError(message)
    if len(view) < HEADER.size:
        raise DecodeError(f"expected at least {HEADER.size} bytes, got {len(view)}")
    _, version, checksum, length, *fields = HEADER.unpack_from(view)
    if version != VERSION:
        message = (
            f"the format version is {version}, and this library reads {VERSION}; read it with a "
            "newer qnumba, if the bytes are not damaged"
        )
        raise DecodeError(message)
    if length != len(view):
        raise DecodeError(f"expected {length} bytes, got {len(view)}; give one whole container")
    actual = _checksum([view])
    if actual != checksum:
        message = f"the checksum is {actual:#010x}, not {checksum:#010x}: the bytes are damaged"
        raise DecodeError(message)
    if fields[5] != 0:
        raise DecodeError(f"a field that must be 0 is {fields[5]}")
    return tuple(fields[:4]), fields[4], tuple(fields[6:])


def _read_texts(view: memoryview, lengths: tuple[int, ...]) -> list[str]:
    """Return the texts that follow one another in a view."""
    texts, start = [], 0
    for length in lengths:
        given = bytes(view[start : start + length])
        try:
            texts.append(given.decode())
        except UnicodeDecodeError as error:
            raise DecodeError(f"{given[:SHOWN]!r} is not UTF-8 text: {error.reason}") from None
        start += length
    return texts


def _read_plan(text: str, shape: tuple[int, ...], dtype: str) -> Plan:
    """Return the plan of a header's scheme and shape, if they and the dtype make an array."""
    try:
        scheme = Scheme.parse(text)
        require(scheme, as_shape(shape), dtype)
    except QuantizationError as error:
        raise DecodeError(f"the header describes no array: {str(error)[:SHOWN]}") from error
    if str(scheme) != text:
        message = f"the scheme {text[:SHOWN]!r} is not written as {str(scheme)[:SHOWN]!r}"
        raise DecodeError(message)
    return plan_of(scheme, shape)


def _read_sections(
    view: memoryview, start: int, plan: Plan, table: tuple[int, ...]
) -> list[memoryview]:
    """Return the sections, if they are where a writer puts them, with zeros between them."""
    layout = _lay_out(start, [*record.section_sizes(plan), len(_table_bytes(plan))])
    claims = zip(table[::2], table[1::2], strict=True)
    for name, place, claim in zip(SECTIONS, layout.places, claims, strict=True):
        if place != claim:
            message = (
                f"the {name} are said to be at (offset, length) {claim}; an array of shape "
                f"{plan.shape} in {str(plan.scheme)[:SHOWN]!r} has them at {place}"
            )
            raise DecodeError(message)
    if layout.end != len(view):
        raise DecodeError(f"the sections end at byte {layout.end} of {len(view)}")
    if any(any(view[gap.start : gap.stop]) for gap in layout.gaps):
        raise DecodeError("the bytes between the sections are not all 0")
    return [view[offset : offset + size] for offset, size in layout.places]
