"""The one normal form of a scheme's arguments; what has none is left to the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.formats import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    try:
        entries: Iterable[Any] = iter(table)  # type: ignore[call-overload]
        with np.errstate(over="ignore"):
            return tuple(float(np.float32(entry)) for entry in entries)
    except (TypeError, ValueError):
        return table


def table_name(table: Any) -> Any:
    """Return the name of a known table, else the table."""
    return next((name for name, entries in TABLES.items() if entries == table), table)


def table_text(table: Any) -> str:
    """Return the text form of a table."""
    name = table_name(table)
    return name if isinstance(name, str) else ",".join(str(np.float32(entry)) for entry in table)
