"""The table of burn.md: what burn refuses or panics on, and what qnumba does there."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

import qnumba as qn

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROWS = Path(__file__).with_suffix(".toml")


class Condition(NamedTuple):
    """What burn says, when, and what happens here, with a piece of code that shows it."""

    section: str
    message: str
    when: str
    here: str
    code: str = ""
    raises: str = ""
    match: str = ""

    @property
    def outcome(self) -> str:
        """The error raised here, or that it works, or that there is no such condition here."""
        return self.raises or ("works" if self.code else "not applicable")


def check(condition: Condition) -> None:
    """Run a row's code and hold it to what the row says: only its last statement may raise.

    Raises
    ------
    AssertionError
        If the code does something else.
    """
    x = np.linspace(-1, 1, 256, dtype=np.float32).reshape(4, 64)
    names = {"np": np, "qn": qn, "x": x, "q": qn.quantize(x, "int8")}
    *before, last = ast.parse(condition.code).body
    _run(before, names)
    try:
        _run([last], names)
    except qn.QuantizationError as error:
        if type(error).__name__ != condition.raises or not re.search(condition.match, str(error)):
            message = f"raised {type(error).__name__}: {error}"
            raise AssertionError(message) from error
        return
    if condition.raises:
        message = f"raised nothing, not {condition.raises}"
        raise AssertionError(message)


def _run(statements: list[ast.stmt], names: dict[str, object]) -> None:
    code = compile(ast.Module(statements, []), ROWS.name, "exec")
    exec(code, names)  # noqa: S102 - the rows of our own file


def _read() -> tuple[Condition, ...]:
    sections = tomllib.loads(ROWS.read_text(encoding="utf-8"))
    return tuple(Condition(name, **row) for name, rows in sections.items() for row in rows)


CONDITIONS = _read()
SECTIONS = tuple(dict.fromkeys(condition.section for condition in CONDITIONS))
