"""The one normal form of a scheme's arguments; what has none is left to the rules."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from qnumba.formats import FLOATS, INTEGERS, TABLES

NUMBERS = FLOATS + INTEGERS  # the dtypes that are numbers here


def dtype_of(dtype: object) -> np.dtype[Any] | None:
    """Return the dtype that a dtype-like names; None where it names none, or is None."""
    if dtype is None:  # NumPy would read float64
        return None
    try:
        return np.dtype(dtype)  # type: ignore[call-overload, no-any-return]
    except Exception:  # noqa: BLE001 - it may be any object, whose attributes raise what they like
        return None


def dtype_name(dtype: object) -> str:
    """Return the name of a dtype-like, without needing the package that defines it."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        return dtype
    found = dtype_of(dtype)
    return str(dtype) if found is None else str(found.name)


def is_several(given: object) -> bool:
    """Return whether something is a sequence of things: text and bytes are one thing.

    A set has no order and an iterator is gone after one look, so neither is a sequence.
    """
    if isinstance(given, np.ndarray):
        return given.ndim > 0
    one = isinstance(given, (str, bytes, bytearray, memoryview))
    return isinstance(given, Sequence) and not one


def whole_number(given: object) -> int | None:
    """Return a whole number as an int; None for what is none. A truth value is no number."""
    if isinstance(given, (bool, np.bool_)):
        return None
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        return None


def whole_numbers(given: object) -> tuple[int, ...] | None:
    """Return a sequence of whole numbers as ints; None for what is none."""
    if not is_several(given):
        return None
    numbers = tuple(whole_number(each) for each in given)  # type: ignore[attr-defined]
    return None if None in numbers else numbers  # type: ignore[return-value]


def canonical_block(block: object) -> Any:
    """Return a block as a tuple without leading 1s; what is not a block is left to the rules."""
    if isinstance(block, list):
        block = tuple(block)
    if isinstance(block, (int, np.integer)) and not isinstance(block, bool):
        block = (block,)
    if not isinstance(block, tuple):
        return block
    block = tuple(int(b) if isinstance(b, np.integer) else b for b in block)
    while len(block) > 1 and block[0] == 1 and not isinstance(block[0], bool):
        block = block[1:]
    return block


def canonical_table(table: object) -> Any:
    """Return a table as a tuple of float32 numbers; what is no table is left to the rules."""
    if table is None or (isinstance(table, str) and table not in TABLES):
        return table
    if isinstance(table, str):
        return TABLES[table]
    plain = is_several(table) and not isinstance(table, np.ma.MaskedArray)
    if not plain or not all(map(_is_number, table)):  # type: ignore[call-overload]
        return table
    try:
        with np.errstate(over="ignore"):  # and -0.0, which equals 0.0, becomes it
            return tuple(float(np.float32(entry)) + 0.0 for entry in table)  # type: ignore[attr-defined]
    except OverflowError:
        return table


def _is_number(entry: object) -> bool:
    named = isinstance(entry, np.generic) and entry.dtype.name in NUMBERS
    return named or type(entry) in {int, float}


def table_name(table: Any) -> Any:
    """Return the name of a known table, else the table."""
    return next((name for name, entries in TABLES.items() if entries == table), table)


def table_text(table: Any) -> str:
    """Return the text form of a table."""
    name = table_name(table)
    return name if isinstance(name, str) else ",".join(str(np.float32(entry)) for entry in table)
