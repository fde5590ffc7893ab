"""Matrix products: rows of a quantized matrix by vectors, never decoded as a whole.

Where codes are integers whose rows fill whole chunks of 64 bytes, they are decoded in registers
(``codes_by_floats``, ``codes_by_codes``). Everything else is decoded a panel of rows at a time
(``along_rows``, ``across_rows``), and multiplied here for a few vectors, or by NumPy's BLAS.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.cpu import dequantize, dots
from qnumba.cpu.jit import as_input, launch, row
from qnumba.cpu.simd_dots import CHUNK, LANES, ROW
from qnumba.cpu.simd_products import FLOATING, TERNARY, WHOLE
from qnumba.cpu.vectors import codes_for, floats_for
from qnumba.layout import plan as plan_of
from qnumba.params import Params

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from qnumba.layout import Plan

TILE = 4  # rows and vectors multiplied at once
MANY = 32  # vectors from which BLAS on panels is faster than decoding in registers
FEW = 4  # vectors up to which a panel is multiplied here, one after the other
LARGEST = 2.0**80  # numbers below it times codes, summed along any row, stay float32
EXACT = 2**16  # codes of a row whose products add up to an int32
PANEL, LARGE_PANEL = 2**18, 2**21  # numbers decoded at a time: for the second cache; for BLAS
ITEM_ROWS, TASK = 64, 65536

_NO_FLOATS, _NO_WHOLES = np.empty(0, np.float32), np.empty(0, np.int32)
_PLACES = (
    *("rows", "row_bytes", "block_rows", "blocks", "item_rows"),
    *("chunks", "per_span", "split", "hop", "flip"),
)


class Matrix(NamedTuple):
    """A quantized array of two axes."""

    words: NDArray[Any]
    plan: Plan
    params: Params


class Form(NamedTuple):
    """Where codes that can be decoded in registers are, and what is subtracted from them."""

    bits: int
    point: int
    places: dict[str, int]


@lru_cache(maxsize=4096)
def form_of(plan: Plan) -> Form | None:
    """Return how rows are decoded in registers; None where they are not.

    They are where codes are integers, rows are whole chunks, and blocks are whole chunks or a
    power of two of them fills one.
    """
    (rows, cols), bits = plan.shape, plan.code_bits
    row_bits, chunk_bits = cols * bits, 8 * CHUNK
    is_affine = plan.scheme.mode == "affine"
    if plan.scheme.mode == "lookup" or plan.value.kind == "float" or not plan.size:
        return None
    if _rows_per_word(plan) > 1 or row_bits % chunk_bits:
        return None
    block_rows, block_cols = plan.block
    block_bits = min(block_cols, cols) * bits
    split, per_span = LANES, -(-block_bits // chunk_bits)
    if block_cols < cols and block_bits % chunk_bits:
        lane_bits = chunk_bits // LANES
        split = block_bits // lane_bits
        if is_affine or block_bits % lane_bits or chunk_bits % block_bits:
            return None
    point = 2 ** (bits - 1) if plan.is_signed else 0
    flip = point * ((2**32 - 1) // (2**bits - 1))
    places = {
        "rows": rows,
        "row_bytes": row_bits // 8,
        "block_rows": block_rows,
        "blocks": -(-cols // block_cols),
        "item_rows": ITEM_ROWS,
        "chunks": row_bits // chunk_bits,
        "per_span": per_span,
        "split": split,
        "hop": is_affine,
        "flip": flip - 2**32 if flip >= 2**31 else flip,
    }
    return Form(bits, point, places)


@lru_cache(maxsize=4096)
def _job(plan: Plan, kind: int, size: int, **changes: int) -> Any:
    """Return the row of numbers that a kernel takes, for tiles of some rows and vectors."""
    form = form_of(plan)
    assert form is not None  # noqa: S101 - callers have asked
    tile = np.dtype((np.int8, (kind, form.bits, size, size)))
    dtype = np.dtype([(name, np.int64) for name in _PLACES] + [("tile", tile)], align=True)
    return row(dtype, **form.places | changes)


def codes_by_floats(q: Matrix, x: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Return the dots (rows, n) of rows decoded in registers and float32 vectors (n, cols).

    None where that cannot be: in another form, for many vectors, or for numbers that are not
    finite or so large that they might overflow before they are scaled.
    """
    form, count = form_of(q.plan), len(x)
    if form is None or count >= MANY or not np.abs(x).max(initial=0) < LARGEST:
        return None
    is_ternary = q.plan.value.name == "Q2S" and form.bits == q.plan.value.bits
    is_ternary = is_ternary and q.plan.scheme.block is None
    kind, changes = (TERNARY, {"flip": 0}) if is_ternary else (FLOATING, {})
    size = 1 if is_ternary or count < TILE - 1 else TILE
    points = np.array([form.point], np.float32)
    if q.params.zero_points is not None:
        points = (q.params.zero_points.reshape(-1) + form.point).astype(np.float32)
    padded = -(-count // size) * size
    numbers = floats_for(x, form.bits, padded)
    job = _job(q.plan, kind, size, **changes)
    return _run(q, job, points, padded, numbers, _NO_WHOLES, _NO_FLOATS)[:, :count]


def codes_by_codes(
    q: Matrix, codes: NDArray[np.int8], scales: NDArray[np.float32], block: int
) -> NDArray[np.float32] | None:
    """Return the dots (rows, n) of rows of codes and int8 vectors (n, cols), as integers.

    ``scales`` has a row for each vector and a column for each ``block`` of its codes. None where
    the rows have no such form, or where a block of the vectors cuts a lane of their codes.
    """
    form, cols = form_of(q.plan), q.plan.shape[1]
    if form is None or q.plan.scheme.mode != "symmetric":
        return None
    per_lane = 32 // form.bits
    is_one = scales.shape[1] == 1
    if not is_one and block % per_lane:
        return None
    is_row = is_one and form.places["blocks"] == 1 and cols <= EXACT
    count = len(codes)
    size = 1 if count < TILE - 1 else TILE
    padded = -(-count // size) * size
    lanes = np.arange(cols // per_lane) * per_lane // (cols if is_one else block)
    beside = np.zeros((padded, len(lanes)), np.float32)
    beside[:count] = scales[:, lanes]
    job = _job(q.plan, WHOLE, size, **({"split": ROW} if is_row else {}))
    numbers, minus = codes_for(codes, form.bits, padded)
    return _run(q, job, _NO_FLOATS, padded, numbers, minus, beside.reshape(-1))[:, :count]


def _run(
    q: Matrix,
    job: Any,
    points: NDArray[np.float32],
    count: int,
    x: NDArray[Any],
    minus: NDArray[np.int32],
    x_scales: NDArray[np.float32],
) -> NDArray[np.float32]:
    rows, cols = q.plan.shape
    out = np.empty((rows, count), np.float32)
    items = -(-rows // ITEM_ROWS)
    launch(
        dots.rows_of_codes,
        q.plan.size * max(1, count // TILE),
        items,
        max(1, TASK // (ITEM_ROWS * cols)),
        job,
        1.0 if q.params.global_scale is None else float(q.params.global_scale),
        as_input(q.words.reshape(-1).view(np.uint8)),
        as_input(q.params.scales.reshape(-1)),
        as_input(points),
        as_input(x),
        as_input(minus),
        as_input(x_scales),
        out,
    )
    return out


# --- panels


def along_rows(q: Matrix, x: NDArray[Any]) -> NDArray[Any]:
    """Return ``q @ x.T`` for vectors (n, cols), in the dtype of x, from panels of rows of q."""
    out = np.empty((q.plan.shape[0], len(x)), x.dtype)
    few = len(x) <= FEW
    numbers = as_input(np.ascontiguousarray(x)) if few else x
    for start, panel in panels(q, x.dtype, PANEL if few else LARGE_PANEL):
        rows, cols = panel.shape
        if few:
            step = max(1, TASK // max(cols, 1))
            launch(dots.along, panel.size, rows, step, as_input(panel), numbers, out, start)
        else:
            np.matmul(panel, x.T, out=out[start : start + rows])
    return out


def across_rows(q: Matrix, x: NDArray[Any]) -> NDArray[Any]:
    """Return ``x @ q`` for vectors (n, rows), in the dtype of x, from panels of rows of q."""
    out = np.zeros((len(x), q.plan.shape[1]), x.dtype)
    few = len(x) <= FEW
    numbers = as_input(np.ascontiguousarray(x)) if few else x
    for start, panel in panels(q, x.dtype, PANEL if few else LARGE_PANEL):
        rows, cols = panel.shape
        if few:
            strips = -(-cols // dots.STRIP)
            launch(dots.across, panel.size, strips, 1, as_input(panel), numbers, out, start)
        else:
            out += numbers[:, start : start + rows] @ panel
    return out


def panels(q: Matrix, dtype: np.dtype[Any], most: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield rows of a matrix decoded, in order, as many at a time as ``most`` numbers hold.

    The memory is used again: a panel is gone when the next is there.
    """
    cols = q.plan.shape[1]
    edges = _edges(q.plan, max(1, most // max(cols, 1)))
    memory = np.empty((max(np.diff(edges), default=0), cols), dtype)
    for start, stop in itertools.pairwise(edges):
        part = rows_of(q, start, stop)
        dequantize(part.words, part.plan, part.params, memory[: stop - start])
        yield start, memory[: stop - start]


def rows_of(q: Matrix, start: int, stop: int) -> Matrix:
    """Return some rows of a matrix, from the edge of a block or within one, and of whole words."""
    layout = plan_of(q.plan.scheme, (stop - start, q.plan.shape[1]))
    per_word = _rows_per_word(q.plan)
    words = q.words[start // per_word : -(-stop // per_word)]
    scales, global_scale, points = q.params
    if q.plan.grid:
        height = q.plan.block[0]
        band = slice(start // height, -(-stop // height))
        scales, points = scales[band], None if points is None else points[band]
    return Matrix(words, layout, Params(scales, global_scale, points))


def _rows_per_word(plan: Plan) -> int:
    """Return how many rows share their words."""
    is_down = plan.scheme.store != "native" and plan.scheme.pack_axis == 1
    return plan.words_dtype.itemsize * 8 // plan.code_bits if is_down else 1


def _edges(plan: Plan, most: int) -> list[int]:
    """Return where panels start, and the end: on edges of words, and of blocks or in one."""
    rows, height, unit = plan.shape[0], max(1, plan.block[0]), _rows_per_word(plan)
    if height < rows:
        unit = math.lcm(unit, height) if height <= most or height % unit else unit
    step = max(unit, most // unit * unit)
    if height >= rows or step % height == 0:
        return [*range(0, rows, step), rows]
    starts = range(0, rows, height)
    return [edge for at in starts for edge in range(at, min(at + height, rows), step)] + [rows]
