"""Jobs: what a kernel is to do, as one row of numbers made from a plan and its options.

A job says where rows, blocks and bytes are, what the formats are, and which steps to take. The
rows of a plan are made once, so that calling a kernel costs little more than running it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.cpu.chunks import CHUNK
from qnumba.cpu.jit import row
from qnumba.cpu.places import AFFINE, INTEGER, KINDS, LOOKUP, MINIFLOAT, VECTOR
from qnumba.cpu.room import TILE
from qnumba.cpu.runs import TABLE_LANES
from qnumba.formats import MAX_BLOCK_RANK, SCALES, thresholds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qnumba.layout import Plan
    from qnumba.params import Options

TASK = 65536  # values that a thread takes at a time
BAND_TILE = 524288  # values of an item of several rows: 2 MiB of float32, for the third cache
AHEAD = 1024  # values in front that are asked for, where an array is read in one stream
LONG_RUN = 256  # values from which the ragged end of a run no longer matters
BYTE, HALF_MANTISSA, HALF_TINY, DOUBLE_MANTISSA = 8, 10, 2.0**-24, 52
# Ratios from LEAST_RATIO on, which is below the edges of all numbers, come out right without a
# division while their remainders are normal float32 numbers: up to MOST_INVERSE (tiles.py).
LEAST_RATIO, MOST_INVERSE = 2.0**-20, 2.0**80
KEPT_NAN = {"E4M3": 0x7F, "E5M2": 0x7E}
KEPT_INFINITY = {"E5M2": 0x7C}

_WHOLE = (
    *("axes", "rows", "cols", "block_cols", "blocks", "row_bytes", "code_bits"),
    *("group_rows", "group_cols", "col_groups", "tile_rows", "ahead", "ahead_measured", "chunks"),
    *("kind", "width", "lo", "hi", "mantissa", "emax", "mask", "number_sign", "half_shift"),
    *("sign_bit", "nan_code", "nan_sign", "infinity_code"),
    *("power_bias", "power_max", "scale_mantissa"),
)
_REAL = (
    *("half", "smallest", "top", "dead", "half_factor", "inverse_max"),
    *("scale_max", "scale_zero", "scale_smallest"),
)
_FLAGS = (
    *("measures", "stores", "encodes"),
    *("is_away", "is_brain", "is_mean", "is_power_rule", "is_direct", "has_runs"),
    "has_neighbours",
    "scale_is_up",
)
JOBS = [
    np.dtype(
        [(name, np.int64) for name in _WHOLE]
        + [(name, np.float64) for name in _REAL]
        + [(name, np.int64, (MAX_BLOCK_RANK,)) for name in ("extents", "steps")]
        + [(name, np.bool_) for name in (*_FLAGS, kind)],
        align=True,
    )
    for kind in KINDS
]


class Job(NamedTuple):
    """A row of numbers for a kernel, how many parts it has, and how many a thread takes at once."""

    row: Any
    parts: int
    step: int


class Jobs(NamedTuple):
    """The jobs of a plan, and the arrays beside them.

    Those from ``measure`` to ``measure_to_encode`` act on whole blocks, ``encode`` and ``decode``
    on any rows, ``reduce`` and ``reduce_and_store`` on chunks of large blocks.
    """

    measure: Job
    store: Job
    measure_and_store: Job
    store_and_encode: Job
    measure_to_encode: Job
    encode: Job
    decode: Job
    reduce: Job
    reduce_and_store: Job
    is_large: bool
    blocks: int
    chunks: int
    edges: dict[str, NDArray[Any]]
    table: NDArray[np.float32]


@lru_cache(maxsize=4096)
def jobs(plan: Plan, options: Options, is_brain: bool) -> Jobs:  # noqa: FBT001 - part of the key
    """Return the jobs of a plan with its options, for bfloat16 (``is_brain``) or other floats."""
    common = _places(plan) | _values(plan, options) | _scales(plan, options)
    common |= {"is_brain": is_brain, "is_mean": options.method == "absmean"}
    size = math.prod(step for _, step in plan.outer) * plan.block_cols
    chunks = -(-size // CHUNK)
    whole, free = common | _whole_blocks(plan), common | _any_rows(plan)
    blocks = math.prod(plan.grid)
    reduced = common | {"chunks": chunks, "group_rows": common["steps"][0]}
    reduced |= {"parts": blocks * chunks, "step": max(1, TASK // size)}
    return Jobs(
        measure=_job(**whole, measures=True),
        store=_job(**whole, stores=True),
        measure_and_store=_job(**whole, measures=True, stores=True),
        store_and_encode=_job(**whole | {"ahead": AHEAD}, stores=True, encodes=True),
        measure_to_encode=_job(**whole, measures=True, stores=True, encodes=True),
        encode=_job(**free, encodes=True),
        decode=_job(**free),
        reduce=_job(**reduced),
        reduce_and_store=_job(**reduced, stores=True),
        is_large=common["is_mean"] or size > CHUNK,
        blocks=blocks,
        chunks=chunks,
        edges={"f": _edges(plan, np.float32), "d": _edges(plan, np.float64)},
        table=_table(plan),
    )


def _job(*, parts: int, step: int, **numbers: Any) -> Job:
    return Job(row(JOBS[numbers["kind"]], **numbers), parts, step)


def _places(plan: Plan) -> dict[str, Any]:
    """Where rows, blocks and bytes are. Codes packed along another axis are made as bytes first."""
    extents, steps = np.ones((2, MAX_BLOCK_RANK), np.int64)
    for axis, (extent, step) in enumerate(plan.outer):
        extents[axis], steps[axis] = extent, step
    across = plan.packed[2] > 1
    code_bits = BYTE if across else plan.code_bits
    row_bytes = plan.cols if across else plan.row_bytes
    return {
        "axes": len(plan.outer),
        "extents": extents,
        "steps": steps,
        "rows": plan.rows,
        "cols": plan.cols,
        "block_cols": plan.block_cols,
        "blocks": -(-plan.cols // plan.block_cols),
        "code_bits": code_bits,
        "row_bytes": row_bytes,
        "has_runs": plan.block_cols % VECTOR == 0 or plan.block_cols >= LONG_RUN,
        "has_neighbours": len(plan.outer) <= 1 and steps[0] == 1,
        "is_direct": code_bits == BYTE and row_bytes == plan.cols,
    }


def _whole_blocks(plan: Plan) -> dict[str, Any]:
    """Items of whole blocks: some bands of short rows, or one band by a group of columns.

    A group of columns starts on a whole byte.
    """
    band_rows = math.prod(step for _, step in plan.outer)
    unit = plan.block_cols * (BYTE // math.gcd(BYTE, plan.block_cols * plan.code_bits % BYTE))
    wanted = (TILE if band_rows == 1 else BAND_TILE) // band_rows
    cols = min(plan.cols, max(1, wanted // unit) * unit)
    bands = 1
    if len(plan.outer) <= 1 and cols == plan.cols:
        bands = max(1, TILE // (band_rows * cols))
    # While a tile is encoded, the next is asked for; of several rows, the next row while one is
    # measured.
    ahead = {"ahead": TILE, "ahead_measured": 0 if band_rows == 1 else plan.cols}
    return _items(plan, bands * band_rows, cols) | ahead


def _any_rows(plan: Plan) -> dict[str, Any]:
    """Items of any rows, in tasks of about the same size; of several axes, one band each."""
    cols = min(plan.cols, TASK)
    return _items(plan, max(1, TASK // cols), cols) | {"ahead": AHEAD}


def _items(plan: Plan, rows: int, cols: int) -> dict[str, Any]:
    """Items of some rows and columns; of several axes, an item has the rows of one band."""
    is_flat = len(plan.outer) <= 1
    bands = math.prod(-(-extent // step) for extent, step in plan.outer)
    col_groups = -(-plan.cols // cols)
    return {
        "group_rows": rows,
        "group_cols": cols,
        "col_groups": col_groups,
        "parts": col_groups * (-(-plan.rows // rows) if is_flat else bands),
        "step": max(1, TASK // (rows * cols)),
        "tile_rows": max(1, TILE // cols) if is_flat and cols == plan.cols else 1,
    }


def _kind(plan: Plan) -> int:
    by_mode = {"affine": AFFINE, "lookup": LOOKUP}
    return by_mode.get(plan.scheme.mode, MINIFLOAT if plan.value.kind == "float" else INTEGER)


def _values(plan: Plan, options: Options) -> dict[str, Any]:
    """Return what the codes mean, and the codes of what is not finite."""
    value, mode = plan.value, plan.scheme.mode
    sign_bit = 1 << (value.bits - 1)
    numbers = {
        "kind": _kind(plan),
        "width": value.bits,
        "lo": 0 if value.kind == "float" else value.lo,
        "hi": 0 if value.kind == "float" else value.hi,
        "half": value.half_range,
        "mask": 2**value.bits - 1,
        "number_sign": sign_bit if value.kind == "int" else 0,
        "sign_bit": sign_bit,
        "is_away": options.rounding == "away",
        "dead": 0.0,
        "inverse_max": MOST_INVERSE,
    }
    if mode == "lookup":
        edges = _edges(plan, np.float64)
        nearest_zero = int(np.searchsorted(edges, 0))
        half = float(np.abs(plan.table).max())
        if np.any(np.abs(edges[edges != 0]) < LEAST_RATIO):
            numbers["inverse_max"] = 0.0
        return numbers | {"half": half, "dead": math.nan, "nan_code": nearest_zero}
    if value.kind != "float":
        return numbers
    shift = HALF_MANTISSA - value.mantissa_bits
    numbers |= {
        "mantissa": value.mantissa_bits,
        "smallest": value.tiny * 2**value.mantissa_bits,
        "top": value.hi,
        "emax": value.emax,
        "half_shift": shift,
        "half_factor": value.tiny / (HALF_TINY * 2**shift),
    }
    if options.nonfinite == "keep":
        numbers |= {"nan_code": KEPT_NAN[value.name], "nan_sign": sign_bit}
        numbers |= {"infinity_code": KEPT_INFINITY.get(value.name, 0)}
    return numbers


def _scales(plan: Plan, options: Options) -> dict[str, Any]:
    """How scales are rounded."""
    scale, rule = plan.scale, options.scale_rounding
    half_step = 1 << (DOUBLE_MANTISSA - 1 - plan.value.mantissa_bits)
    return {
        "is_power_rule": rule in {"floor", "even"},
        "power_bias": half_step if rule == "even" else 0,
        "power_max": math.frexp(SCALES["UE8M0"].max)[1] - 1,
        "scale_is_up": rule == "up",
        "scale_mantissa": scale.mantissa_bits,
        "scale_max": scale.max,
        "scale_zero": scale.zero,
        "scale_smallest": scale.tiny * 2**scale.mantissa_bits,
    }


def _edges(plan: Plan, dtype: type[np.floating[Any]]) -> NDArray[Any]:
    """Return the thresholds of a lookup scheme, and infinities up to those of a small table."""
    table = plan.scheme.table
    edges = np.full(TABLE_LANES - 1, np.inf, dtype)  # small tables are searched in registers
    if table is not None:
        found = thresholds(table, dtype)
        edges = np.append(found, edges[found.size :])
    edges.flags.writeable = False  # one type for all: Numba compiles for each that it meets
    return edges


def _table(plan: Plan) -> NDArray[np.float32]:
    """Return the lookup table, small ones repeated until they fill the lanes of a vector."""
    if plan.table is None:
        return np.empty(0, np.float32)
    return np.resize(plan.table, max(plan.table.size, TABLE_LANES))
