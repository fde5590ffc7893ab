"""From a plan to launches: what a kernel is called with, and how many threads it needs."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import types

from qnumba.formats import GLOBAL_TINY, global_max
from qnumba.gpu import driver
from qnumba.gpu.scalar import EVEN, FLOOR, INT, LOOKUP, MINIFLOAT, NEAREST, UP
from qnumba.layout import plan as make_plan
from qnumba.scheme import Scheme

if TYPE_CHECKING:
    from qnumba.layout import Plan
    from qnumba.params import Options

THREADS = 256
RULES = {"up": UP, "nearest": NEAREST, "floor": FLOOR, "even": EVEN}
_KEPT_NAN = {"E4M3": 0x7F, "E5M2": 0x7E}
_KEPT_INFINITY = {"E5M2": 0x7C}
_OUTER = 5

BYTES = types.CPointer(types.uint8)
POINTERS = {
    "float32": types.CPointer(types.float32),
    "float64": types.CPointer(types.float64),
    "float16": types.CPointer(types.uint16),
    "bfloat16": types.CPointer(types.int16),
    "int32": types.CPointer(types.int32),
    "uint8": BYTES,
}
INTS, FLOATS = types.int64, types.float64


def ints(count: int) -> Any:
    """Return the type of a tuple of int64."""
    return types.UniTuple(INTS, count)


def floats(count: int) -> Any:
    """Return the type of a tuple of float64."""
    return types.UniTuple(FLOATS, count)


GEOMETRY = types.Tuple((ints(_OUTER), ints(_OUTER), INTS, INTS))
PACKING, FORM, ROW = ints(6), ints(7), ints(6)


class Geometry(NamedTuple):
    """Where blocks are: the outer axes of a plan, padded in front to five, and the columns."""

    extents: tuple[int, ...]
    steps: tuple[int, ...]
    cols: int
    block_cols: int


@lru_cache(maxsize=4096)
def geometry(plan: Plan) -> Geometry:
    """Return the geometry of a plan."""
    pad = ((1, 1),) * (_OUTER - len(plan.outer))
    extents, steps = zip(*pad, *plan.outer, strict=True)
    return Geometry(extents, steps, plan.cols, plan.block_cols)


@lru_cache(maxsize=4096)
def packing(plan: Plan) -> tuple[int, ...]:
    """Return (before, length, after, codes per word, bytes per word, bits per code)."""
    word_bytes = plan.words_dtype.itemsize
    return (*plan.packed, word_bytes * 8 // plan.code_bits, word_bytes, plan.code_bits)


def tail_geometry(size: int) -> Geometry:
    """Return the geometry of one row with one scale."""
    return Geometry((1,) * _OUTER, (1,) * _OUTER, size, size)


def tail_packing(plan: Plan, size: int) -> tuple[int, ...]:
    """Return the packing of the last ``size`` elements of a per-tensor plan."""
    return (1, size, 1, *packing(plan)[3:])


@lru_cache(maxsize=4096)
def one_scale(plan: Plan) -> Plan:
    """Return a plan over the same elements with one scale for all."""
    return make_plan(Scheme("Q8S"), (plan.size,))


def kind(plan: Plan) -> int:
    """Return what codes are: INT, MINIFLOAT or LOOKUP."""
    if plan.scheme.mode == "lookup":
        return LOOKUP
    return MINIFLOAT if plan.value.kind == "float" else INT


def exponent(power: float) -> int:
    """Return the exponent of a power of two."""
    return math.frexp(power)[1] - 1


@lru_cache(maxsize=4096)
def encode_form(plan: Plan, options: Options) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the form and the minifloat row that ``general.encode`` takes."""
    value, scheme = plan.value, plan.scheme
    entries = 0 if scheme.table is None else len(scheme.table) - 1
    affine, away = scheme.mode == "affine", options.rounding == "away"
    form = (kind(plan), scheme.two_level, affine, value.lo, value.hi, away, entries)
    keep = options.nonfinite == "keep"
    nan = _KEPT_NAN.get(value.name, -1) if keep else -1
    infinity = _KEPT_INFINITY.get(value.name, -1) if keep else -1
    return tuple(int(part) for part in form), minifloat_row(plan, nan, infinity)


@lru_cache(maxsize=4096)
def decode_form(plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the form and the minifloat row that ``general.decode`` takes."""
    scheme = plan.scheme
    affine = scheme.mode == "affine"
    form = (kind(plan), scheme.two_level, affine, plan.is_signed, plan.value.bits, 0, 0)
    return tuple(int(part) for part in form), minifloat_row(plan, -1, -1)


def minifloat_row(plan: Plan, nan: int, infinity: int) -> tuple[int, ...]:
    """Return the row of a value type that ``scalar.minifloat_code`` takes."""
    value = plan.value
    return (
        value.bits,
        value.mantissa_bits,
        exponent(value.tiny),
        int(value.hi),
        nan,
        infinity,
    )


def scale_row(plan: Plan) -> tuple[float, ...]:
    """Return the row of a scale dtype that ``scalar.store_scale`` takes."""
    scale = plan.scale
    return (float(scale.mantissa_bits), float(exponent(scale.tiny)), scale.max, scale.zero)


def top(plan: Plan) -> float:
    """Return the number that the largest magnitude of a block is divided by."""
    return plan.value.half_range if plan.table is None else float(np.abs(plan.table).max())


def global_row(plan: Plan) -> tuple[float, float]:
    """Return the least and the greatest global scale; zeros for one level."""
    return (GLOBAL_TINY, global_max(plan.scale)) if plan.scheme.two_level else (0.0, 0.0)


def run(function: Any, signature: Any, count: int, stream: int, *arguments: Any) -> None:
    """Launch one thread for each of ``count`` things."""
    if count:
        driver.launch(function, signature, -(-count // THREADS), THREADS, stream, arguments)


def run_warps(function: Any, signature: Any, tasks: int, stream: int, *arguments: Any) -> None:
    """Launch warps that share ``tasks`` between them."""
    grid = min(-(-tasks * 32 // THREADS), driver.multiprocessors() * 64)
    driver.launch(function, signature, grid, THREADS, stream, arguments)
