"""Plans: where every block, row, word and code of an array is, as integers. Pure Python.

The axes of an array are merged where blocks do not notice, until a kernel sees rows of columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from qnumba.formats import SCALES, STORES, VALUES, ScaleType, ValueType
from qnumba.scheme import Scheme, expand_block

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Plan:
    """Everything a backend needs to know about one scheme on one shape.

    Attributes
    ----------
    scheme, shape
        What the plan is for.
    block : tuple of int
        Block extent on every axis, clipped to the shape; the shape itself for a per-tensor scale.
    grid : tuple of int
        Shape of the scales: blocks along every axis, ``()`` for a per-tensor scale.
    value, scale
        The rows of the value type and of the innermost scale dtype.
    outer : tuple of (int, int)
        Extent and block extent of the merged leading axes: their product is the number of rows.
    cols, block_cols : int
        Elements in a row, and the block's extent along it.
    words_shape, words_dtype
        The array that holds the codes.
    code_bits : int
        Bits a code takes in storage: 8 in the native store.
    row_bytes : int
        Bytes of a stored row, padded to whole words; meaningful when words run along rows.
    packed : tuple of int
        Sizes before, along and after the packed axis. The last is 1 when words run along rows.
    """

    scheme: Scheme
    shape: tuple[int, ...]
    block: tuple[int, ...]
    grid: tuple[int, ...]
    value: ValueType
    scale: ScaleType
    outer: tuple[tuple[int, int], ...]
    cols: int
    block_cols: int
    words_shape: tuple[int, ...]
    words_dtype: np.dtype[np.generic]
    code_bits: int
    row_bytes: int
    packed: tuple[int, int, int]

    def __hash__(self) -> int:
        """Hash by what determines the plan."""
        return hash((self.scheme, self.shape))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """Number of merged rows."""
        return math.prod(extent for extent, _ in self.outer)

    @property
    def code_dtype(self) -> np.dtype[np.generic]:
        """Dtype of one code per element: int8 for two's complement values, else uint8."""
        return np.dtype(np.int8 if self.is_signed else np.uint8)

    @property
    def is_signed(self) -> bool:
        """Whether codes are two's complement numbers (indices and minifloat patterns are not)."""
        return self.value.kind == "int" and self.scheme.mode != "lookup"

    @property
    def table(self) -> NDArray[np.float32] | None:
        """The lookup table, if the scheme has one."""
        table = self.scheme.table
        return None if table is None else np.array(table, np.float32)


@lru_cache(maxsize=4096)
def plan(scheme: Scheme, shape: tuple[int, ...]) -> Plan:
    """Return the plan of a scheme on a shape.

    Raises
    ------
    SchemeError
        If the block has more extents than the shape has axes.
    """
    value, store = VALUES[scheme.value], STORES[scheme.store]
    block: tuple[int, ...] = shape
    grid: tuple[int, ...] = ()
    if scheme.block is not None:
        full = expand_block(scheme, len(shape))
        block = tuple(max(min(b, n), 1) for b, n in zip(full, shape, strict=True))
        grid = tuple(-(-n // b) for n, b in zip(shape, block, strict=True))
    code_bits = value.bits if store.word_bits else 8
    per_word = store.word_bits // value.bits if store.word_bits else 1
    axis = len(shape) - 1 - scheme.pack_axis
    length = shape[axis] if shape else 1
    words_shape = list(shape) or [1] * bool(store.word_bits)
    if store.word_bits:
        words_shape[axis] = -(-length // per_word)
    along_rows = not store.word_bits or math.prod(shape[axis + 1 :]) == 1
    line_padded = bool(length % per_word) or not along_rows
    inner = axis + 1 if store.word_bits and along_rows else len(shape)
    outer, (cols, block_cols) = _merge(shape[:inner], block[:inner], merge_last=not line_padded)
    word_bits = store.word_bits or 8
    return Plan(
        scheme=scheme,
        shape=shape,
        block=block,
        grid=grid,
        value=value,
        scale=SCALES[scheme.scale_dtype],
        outer=outer,
        cols=cols,
        block_cols=block_cols,
        words_shape=tuple(words_shape),
        words_dtype=_word_dtype(scheme, value),
        code_bits=code_bits,
        row_bytes=-(-cols * code_bits // word_bits) * word_bits // 8,
        packed=_sides(shape, axis) if store.word_bits else (1, math.prod(shape), 1),
    )


def _word_dtype(scheme: Scheme, value: ValueType) -> np.dtype[np.generic]:
    signed = scheme.store == "native" and value.kind == "int" and scheme.mode != "lookup"
    return np.dtype(np.int8) if signed else np.dtype(STORES[scheme.store].word)


def _sides(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Return the sizes before, along and after an axis."""
    if not shape:
        return (1, 1, 1)
    return (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


def _merge(
    shape: tuple[int, ...], block: tuple[int, ...], *, merge_last: bool
) -> tuple[tuple[tuple[int, int], ...], tuple[int, int]]:
    """Merge neighbouring axes whose blocks do not notice; return the outer axes and the last.

    Two neighbours merge when the inner axis is one block, or when the outer block is 1 and the
    inner axis is a whole number of blocks.
    """
    axes = list(zip(shape, block, strict=True)) or [(1, 1)]
    merged = [axes.pop()]
    while axes:
        extent, step = axes.pop()
        inner_extent, inner_step = merged[-1]
        may_merge = merge_last or len(merged) > 1
        if may_merge and inner_step >= inner_extent:
            merged[-1] = (extent * inner_extent, step * inner_extent)
        elif may_merge and step == 1 and inner_extent % inner_step == 0:
            merged[-1] = (extent * inner_extent, inner_step)
        else:
            merged.append((extent, step))
    last, *outer = merged
    return tuple(reversed(outer)), last
