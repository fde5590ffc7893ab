"""The rules as data: what a scheme may be, alone and together with a shape, a dtype or parameters.

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


class Rule(NamedTuple):
    """One thing that must hold. ``reason`` and ``fix`` are format strings over ``s``."""

    field: str
    broken: Callable[[Any], bool]
    reason: str
    fix: str
    change: Callable[[Any], dict[str, Any]] | None = None


class ShapeCase(NamedTuple):
    """A scheme and the shape of an array."""

    scheme: Any
    shape: tuple[int, ...]


class DtypeCase(NamedTuple):
    """A scheme and the name of an array's dtype."""

    scheme: Any
    dtype: str


class ParamsCase(NamedTuple):
    """A scheme, the grid its scales must have (None: unknown) and the parameters given."""

    scheme: Any
    grid: tuple[int, ...] | None
    params: Any
    least: float
    greatest: float
    finite: bool


class OptionsCase(NamedTuple):
    """A scheme and the options it is to be used with."""

    scheme: Any
    rounding: object
    scale_rounding: object
    nonfinite: object
    method: object


def closest(name: object, allowed: Iterable[str]) -> str:
    """Return the allowed name most like the given one."""
    names = list(allowed)
    by_case = {entry.casefold(): entry for entry in names}
    found = difflib.get_close_matches(str(name).casefold(), by_case, n=1, cutoff=0.0)
    return by_case[found[0]] if found else names[0]


def _listed(names: Any) -> str:
    return ", ".join(str(name) for name in names)


def _one_of(field: str, allowed: Any, word: str, *, optional: bool = False) -> Rule:
    """Return the rule that a field is one of some names."""

    def broken(s: Any) -> bool:
        given = getattr(s, field)
        return not (optional and given is None) and (
            not isinstance(given, str) or given not in allowed
        )

    return Rule(
        field,
        broken,
        f"{{s.{field}!r}} is not a {word}",
        f"use one of {_listed(allowed)}",
        lambda s: {field: closest(getattr(s, field), allowed)},
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


def _kind(s: Any) -> str:
    return VALUES[s.value].kind


SCHEME_RULES: tuple[Rule, ...] = (
    _one_of("value", VALUES, "value type"),
    _one_of("mode", MODES, "mode"),
    _one_of("block_scale", SCALES, "scale dtype", optional=True),
    _one_of("tensor_scale", SCALES, "scale dtype", optional=True),
    _one_of("store", STORES, "store", optional=True),
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
        lambda s: s.mode == "affine" and _kind(s) == "float",
        "affine mode needs an integer value type: a zero point has no meaning for {s.value}",
        'use mode="symmetric", or an integer value type such as U8',
        lambda _: {"mode": "symmetric"},
    ),
    Rule(
        "mode",
        lambda s: s.mode == "symmetric" and _kind(s) == "uint",
        "{s.value} holds no negative numbers, so it needs a zero point or a table",
        'use mode="affine", or a signed value type such as Q8S',
        lambda _: {"mode": "affine"},
    ),
    Rule(
        "mode",
        lambda s: s.mode == "lookup" and _kind(s) == "float",
        "a lookup code is an index, so the minifloat {s.value} has nothing to mean",
        "use the integer value type of the same width",
        lambda s: {"value": f"U{VALUES[s.value].bits}"},
    ),
    Rule(
        "table",
        lambda s: s.mode == "lookup" and s.table is None,
        "lookup takes a table of codes, but none was provided",
        f"give table= with 2**bits ascending numbers, or a name: {_listed(TABLES)}",
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
        f"give finite numbers in ascending order, not all zero, or a table name: {_listed(TABLES)}",
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

SHAPE_RULES: tuple[Rule, ...] = (
    Rule(
        "block",
        lambda s: s.scheme.block is not None and _block_rank(s.scheme) > len(s.shape),
        "the block {s.scheme.block} has more extents than the array of shape {s.shape} has axes",
        "drop the leading extents, or reshape the array",
        lambda s: {"block": s.scheme.block[-len(s.shape) :]} if s.shape else {"block": (1,)},
    ),
    Rule(
        "pack_axis",
        lambda s: s.scheme.pack_axis >= max(len(s.shape), 1),
        "the packed axis {s.scheme.pack_axis}, counted from the innermost, is outside an array "
        "of shape {s.shape}",
        "use a smaller pack_axis=; 0 is the last axis",
        lambda s: {"pack_axis": max(len(s.shape) - 1, 0)},
    ),
)

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)
DTYPES = FLOATS + INTEGERS

DTYPE_RULES: tuple[Rule, ...] = (
    Rule(
        "dtype",
        lambda s: s.dtype not in DTYPES,
        "arrays of dtype {s.dtype} cannot be quantized",
        f"convert to one of {_listed(DTYPES)}",
    ),
)


def _is_two_level(scheme: Any) -> bool:
    return scheme.block is not None and scheme.tensor_scale is not None


PARAMS_RULES: tuple[Rule, ...] = (
    Rule(
        "global_scale",
        lambda s: s.params.global_scale is not None and not _is_two_level(s.scheme),
        "{s.scheme} does not take a per-tensor scale",
        "drop global_scale, or give the scheme a block and tensor_scale=F32",
    ),
    Rule(
        "global_scale",
        lambda s: s.params.global_scale is None and _is_two_level(s.scheme),
        "{s.scheme} requires a per-tensor scale",
        "give global_scale, for example from calibrate()",
    ),
    Rule(
        "zero_points",
        lambda s: s.params.zero_points is not None and s.scheme.mode != "affine",
        "{s.scheme} does not take zero points",
        "drop zero_points, or use mode=affine",
    ),
    Rule(
        "zero_points",
        lambda s: s.params.zero_points is None and s.scheme.mode == "affine",
        "{s.scheme} requires zero points",
        "give zero_points, one integer per scale",
    ),
    Rule(
        "scales",
        lambda s: s.grid is not None and s.params.scales.shape != s.grid,
        "the scales have shape {s.params.scales.shape}, but the block grid is {s.grid}",
        "give one scale per block; a scheme without a block takes a scale of shape ()",
    ),
    Rule(
        "zero_points",
        lambda s: (
            s.params.zero_points is not None and s.params.zero_points.shape != s.params.scales.shape
        ),
        "the zero points have shape {s.params.zero_points.shape}, but the scales have shape "
        "{s.params.scales.shape}",
        "give one zero point per scale",
    ),
    Rule(
        "scales",
        lambda s: not s.finite,
        "a scale is negative, NaN or infinite",
        "give finite scales of at least 0",
    ),
    Rule(
        "zero_points",
        lambda s: (
            s.params.zero_points is not None
            and not (
                VALUES[s.scheme.value].lo <= s.least and s.greatest <= VALUES[s.scheme.value].hi
            )
        ),
        "the zero points run from {s.least} to {s.greatest}, outside the codes of {s.scheme.value}",
        "give zero points that are codes of the value type",
    ),
)

OPTION_NAMES: dict[str, tuple[str, ...]] = {
    "rounding": ("even", "away"),
    "scale_rounding": ("up", "nearest", "floor", "even"),
    "nonfinite": ("raise", "clip", "keep"),
    "method": ("minmax", "absmean"),
}

OPTION_RULES: tuple[Rule, ...] = (
    *(
        _one_of(field, names, f"{field} rule")._replace(change=None)
        for field, names in OPTION_NAMES.items()
    ),
    Rule(
        "scale_rounding",
        lambda s: (
            s.scale_rounding in {"floor", "even"}
            and (s.scheme.scale_dtype != "UE8M0" or _kind(s.scheme) != "float")
        ),
        "scale_rounding={s.scale_rounding} is defined for minifloats with UE8M0 scales, not for "
        "{s.scheme}",
        "use scale_rounding=up or nearest",
    ),
    Rule(
        "nonfinite",
        lambda s: s.nonfinite == "keep" and s.scheme.value not in {"E4M3", "E5M2"},
        "{s.scheme.value} has no code for NaN or infinity",
        "use nonfinite=clip, or a value type that holds them: E4M3, E5M2",
    ),
    Rule(
        "method",
        lambda s: s.method == "absmean" and _is_two_level(s.scheme),
        "AbsMean calibration has no two-level form: a mean over the block cannot be split in two",
        "use method=minmax, or drop tensor_scale from the scheme",
    ),
    Rule(
        "method",
        lambda s: s.method == "absmean" and s.scheme.mode == "affine",
        "absmean finds a scale around 0, but affine mode needs a range",
        "use method=minmax, or a symmetric scheme",
    ),
)


def _block_rank(scheme: Any) -> int:
    """Return the number of axes a block needs; a block of one element needs none."""
    return 0 if scheme.block == (1,) else len(scheme.block)
