"""The rules of schemes as data: what a scheme may be by itself.

A rule is one row: the field at fault, a test that is true when the rule is broken, what is wrong,
what to do, and the change that gives the nearest valid scheme. Rules are tried in order; a later
rule may rely on the earlier ones.
"""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from qnumba.formats import (
    MAX_BLOCK_EXTENT,
    MAX_BLOCK_RANK,
    MODES,
    SCALES,
    STORES,
    TABLES,
    TWO_LEVEL_SCALES,
    VALUES,
    default_store,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


LONGEST = 40  # characters of a name that are compared: no name has half as many


class Rule(NamedTuple):
    """One thing that must hold. ``reason`` and ``fix`` are format strings over ``s``.

    ``change`` gives the arguments of the nearest valid scheme, None where nothing is near.
    """

    field: str
    broken: Callable[[Any], bool]
    reason: str
    fix: str
    change: Callable[[Any], dict[str, Any] | None] | None = None


def closest(name: object, allowed: Iterable[str]) -> str | None:
    """Return the allowed name most like the given one; None where none is like it."""
    if not isinstance(name, str):
        return None
    by_case = {entry.casefold(): entry for entry in allowed}
    found = difflib.get_close_matches(name[:LONGEST].casefold(), by_case, n=1, cutoff=0.4)
    return by_case[found[0]] if found else None


def listed(names: Iterable[str]) -> str:
    """Return names as a list in words."""
    return ", ".join(names)


def one_of(field: str, allowed: Any, word: str, *, optional: bool = False) -> Rule:
    """Return the rule that a field is one of some names."""

    def broken(s: Any) -> bool:
        given = getattr(s, field)
        return not (optional and given is None) and (
            not isinstance(given, str) or given not in allowed
        )

    def change(s: Any) -> dict[str, Any] | None:
        near = closest(getattr(s, field), allowed)
        return {field: near} if near or optional else None

    return Rule(
        field, broken, f"{{s.{field}!r}} is not a {word}", f"use one of {listed(allowed)}", change
    )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _clamped_block(s: Any) -> tuple[int, ...] | None:
    """Return a legal block close to the one given."""
    given = s.block if isinstance(s.block, tuple) else (s.block,)
    try:
        extents = [min(max(round(float(b)), 1), MAX_BLOCK_EXTENT) for b in given]
    except (TypeError, ValueError, OverflowError):
        return (32,)
    while len(extents) > 1 and extents[0] == 1:
        del extents[0]
    return tuple(extents[-MAX_BLOCK_RANK:]) or (32,)


def _bad_table(s: Any) -> bool:
    return not (
        isinstance(s.table, tuple)
        and all(isinstance(entry, float) and math.isfinite(entry) for entry in s.table)
        and any(s.table)
        and all(a <= b for a, b in zip(s.table, s.table[1:], strict=False))
    )


def kind_of(s: Any) -> str:
    """Return the kind of a scheme's value type: int, uint or float."""
    return VALUES[s.value].kind


SCHEME_RULES: tuple[Rule, ...] = (
    one_of("value", VALUES, "value type"),
    one_of("mode", MODES, "mode"),
    one_of("block_scale", SCALES, "scale dtype", optional=True),
    one_of("tensor_scale", SCALES, "scale dtype", optional=True),
    one_of("store", STORES, "store", optional=True),
    Rule(
        "block",
        lambda s: (
            s.block is not None
            and not (
                isinstance(s.block, tuple)
                and s.block
                and all(_is_int(b) and 1 <= b <= MAX_BLOCK_EXTENT for b in s.block)
            )
        ),
        "{s.block!r} is not a block: extents are whole numbers from 1 to 2**31 - 1",
        "give an int, or a tuple of ints for a rectangle, such as block=32 or block=(128, 128)",
        lambda s: {"block": _clamped_block(s)},
    ),
    Rule(
        "block",
        lambda s: s.block is not None and len(s.block) > MAX_BLOCK_RANK,
        f"the block {{s.block}} has more than {MAX_BLOCK_RANK} extents",
        f"keep at most {MAX_BLOCK_RANK} extents; they count from the last axis",
        lambda s: {"block": s.block[-MAX_BLOCK_RANK:]},
    ),
    Rule(
        "pack_axis",
        lambda s: not _is_int(s.pack_axis) or s.pack_axis < 0,
        "{s.pack_axis!r} is not an axis counted from the innermost (0 is the last axis)",
        "give 0 for the last axis, 1 for the one before it, and so on",
        lambda _: {"pack_axis": 0},
    ),
    Rule(
        "block_scale",
        lambda s: s.block_scale is not None and s.block is None,
        "a block scale ({s.block_scale}) is given without a block",
        "give block= as well, or tensor_scale= for one scale per tensor",
        lambda s: {"block_scale": None, "tensor_scale": s.tensor_scale or s.block_scale},
    ),
    Rule(
        "mode",
        lambda s: s.mode == "affine" and kind_of(s) == "float",
        "affine mode needs an integer value type: a zero point has no meaning for {s.value}",
        'use mode="symmetric", or an integer value type such as U8',
        lambda _: {"mode": "symmetric"},
    ),
    Rule(
        "mode",
        lambda s: s.mode == "symmetric" and kind_of(s) == "uint",
        "{s.value} holds no negative numbers, so it needs a zero point or a table",
        'use mode="affine", or a signed value type such as Q8S',
        lambda _: {"mode": "affine"},
    ),
    Rule(
        "mode",
        lambda s: s.mode == "lookup" and kind_of(s) == "float",
        "a lookup code is an index, so the minifloat {s.value} has nothing to mean",
        "use the integer value type of the same width",
        lambda s: {"value": f"U{VALUES[s.value].bits}"},
    ),
    Rule(
        "table",
        lambda s: s.mode == "lookup" and s.table is None,
        "lookup takes a table of codes, but none was provided",
        f"give table= with 2**bits ascending numbers, or a name: {listed(TABLES)}",
        lambda _: {"table": TABLES["nf4"], "value": "U4"},
    ),
    Rule(
        "table",
        lambda s: s.mode != "lookup" and s.table is not None,
        "a table was provided, but {s.mode} mode does not take one",
        'drop table=, or use mode="lookup"',
        lambda _: {"table": None},
    ),
    Rule(
        "table",
        lambda s: s.table is not None and _bad_table(s),
        "{s.table!r} is not a lookup table",
        f"give finite numbers in ascending order, not all zero, or a table name: {listed(TABLES)}",
        lambda _: {"table": TABLES["nf4"], "value": "U4"},
    ),
    Rule(
        "table",
        lambda s: s.table is not None and len(s.table) != 2 ** VALUES[s.value].bits,
        "{s.value} indexes a table of exactly 2**bits entries, but the table's length differs",
        "give 4 entries for 2 bits, 16 for 4 bits, 256 for 8 bits",
        lambda s: {
            "value": {4: "U2", 16: "U4", 256: "U8"}.get(len(s.table), "U4"),
            "table": s.table if len(s.table) in {4, 16, 256} else TABLES["nf4"],
        },
    ),
    Rule(
        "store",
        lambda s: s.store == "packed_native" and s.value != "E2M1",
        "{s.value} doesn't support native packing",
        "use store=packed_u32 or native; packed_native is for E2M1",
        lambda s: {"store": default_store(s.value)},
    ),
    Rule(
        "store",
        lambda s: s.store is not None and s.value not in STORES[s.store].values,
        "{s.value} fills a byte, so it cannot be packed in bytes",
        "use store=native, which is one byte per code",
        lambda s: {"store": default_store(s.value)},
    ),
    Rule(
        "mode",
        lambda s: s.mode == "affine" and s.block is not None and s.tensor_scale is not None,
        "affine mode has no two-level form",
        "drop tensor_scale=, or use symmetric mode",
        lambda _: {"tensor_scale": None},
    ),
    Rule(
        "block_scale",
        lambda s: (
            s.block is not None
            and s.tensor_scale is not None
            and s.block_scale not in TWO_LEVEL_SCALES
        ),
        "block scales in {s.block_scale} reach float32's range, which a per-tensor scale cannot "
        "absorb",
        f"use block_scale={' or '.join(TWO_LEVEL_SCALES)} under a tensor scale, or drop "
        "tensor_scale=",
        lambda _: {"tensor_scale": None},
    ),
    Rule(
        "tensor_scale",
        lambda s: s.block is not None and s.tensor_scale not in {None, "F32"},
        "a two-level scheme stores its per-tensor scale as F32, got {s.tensor_scale}",
        "use tensor_scale=F32",
        lambda _: {"tensor_scale": "F32"},
    ),
)
