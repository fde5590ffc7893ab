"""What a terminal sees: tables, sizes, and a progress bar where someone is watching."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from typing_extensions import Self

UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
WIDEST = 100  # characters of a name, or of a cell with another to its right
ROUNDS_UP = 999.5  # to four digits, which the next unit writes with one
BAR_INTERVAL = 0.1  # seconds between two drawings
COMPILING = "qnumba: compiling kernels, once on this machine; this may take half a minute"
# How what the library says of its arguments reads on a command line; what was given is in quotes.
SPOKEN: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (
        r"(?<!')\b(rounding|scale_rounding|nonfinite|method)='?(\w+)'?",
        lambda found: f"--{found[1].replace('_', '-')} {found[2]}",
    ),
    (r"(?<!')\bblock=\(([\d, ]+)\)", lambda found: "block=" + found[1].replace(", ", "x")),
    (r"\btensor_scale=", lambda _: "tensor="),
    (r'\buse mode="?(\w+)"?', lambda found: f"use {found[1]}"),
)


def table(rows: Sequence[Sequence[str]], align: str) -> str:
    """Lay out rows of text in columns; `align` has ``<`` or ``>`` for each column."""
    rows = [(*map(_cut, cells), last) for *cells, last in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)
        ).rstrip()
        for row in rows
    )


def size(nbytes: int) -> str:
    """Write a number of bytes for people: ``590 kB``."""
    number, unit = float(nbytes), 0
    while number >= ROUNDS_UP and unit < len(UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {UNITS[unit]}"


def count(number: int, what: str) -> str:
    """Write a number of things: ``1 array``, ``2,000 arrays``."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def shape(extents: Sequence[int]) -> str:
    """Write a shape for people: ``384 x 384``."""
    return " x ".join(map(str, extents)) if len(extents) else "scalar"


def seconds(duration: float) -> str:
    """Write a time for people: ``3.2 ms``."""
    return f"{duration:.3g} s" if duration >= 1 else f"{duration * 1000:.3g} ms"


def clean(text: str) -> str:
    """Return text from a file such that it cannot move the cursor or break a line."""
    return text if text.isprintable() else repr(text)[1:-1]


def label(name: str) -> str:
    """Return a name from a file such that it is one line, and not a long one."""
    return _cut(clean(name))


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."


def spoken(text: str) -> str:
    """Return a message of the library in the words of the command line."""
    for pattern, say in SPOKEN:
        text = re.sub(pattern, say, text)
    return text


def strict_json(thing: Any) -> Any:
    """Replace what JSON has no word for: NaN and infinities become None."""
    if isinstance(thing, dict):
        return {key: strict_json(entry) for key, entry in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [strict_json(entry) for entry in thing]
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing


class SmallBar:
    """A progress bar for installations without tqdm: one line, drawn again and again."""

    def __init__(self, total: int, desc: str) -> None:
        self._total, self._desc = max(total, 1), desc
        self._done, self._drawn = 0, 0.0

    def __enter__(self) -> Self:
        """Show that nothing is done yet."""
        self._draw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wipe the line."""
        self._write("\r\x1b[K")

    def update(self, amount: int) -> None:
        """Count work that is done, and draw if it is time."""
        self._done += amount
        if time.monotonic() >= self._drawn + BAR_INTERVAL:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        room = shutil.get_terminal_size().columns - len(self._desc) - len(" 100% []\n")
        width = max(0, min(40, room))
        filled = "#" * (width * self._done // self._total)
        self._write(f"\r{self._desc} {100 * self._done // self._total:3d}% [{filled:<{width}}]")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


class NoBar:
    """What stands for a bar where nobody watches."""

    def update(self, amount: int) -> None:
        """Do nothing."""


@contextlib.contextmanager
def progress(total: int, desc: str) -> Iterator[Any]:
    """Show a bar on standard error for `total` bytes of work, if that is a terminal.

    Yields
    ------
    object
        With a method ``update(nbytes)``.
    """
    if not sys.stderr.isatty():
        yield NoBar()
        return
    desc = clean(desc)
    try:
        tqdm = import_module("tqdm").tqdm
    except ImportError:
        with SmallBar(total, desc) as bar:
            yield bar
        return
    options = {"unit": "B", "unit_scale": True, "mininterval": BAR_INTERVAL}
    with tqdm(total=total, desc=desc, leave=False, file=sys.stderr, **options) as bar:
        yield bar


@contextlib.contextmanager
def noting_compilation() -> Iterator[None]:
    """Say once on standard error that kernels are compiled: it takes long, and only once."""
    from numba.core.event import Listener, install_listener  # noqa: PLC0415 - loads Numba

    class Note(Listener):
        is_said = False

        def on_start(self, _: Any) -> None:
            if not self.is_said:
                self.is_said = True
                start = "\r\x1b[K" if sys.stderr.isatty() else ""  # a bar may stand in the line
                print(f"{start}{COMPILING}", file=sys.stderr, flush=True)

        def on_end(self, _: Any) -> None:
            pass

    with install_listener("numba:compile", Note()):
        yield
