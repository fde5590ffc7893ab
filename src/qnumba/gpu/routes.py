"""Which arrays take a fast kernel, and its launch. What none takes, the general kernels do."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from numba import types

from qnumba.gpu import driver, fast, general
from qnumba.gpu.launch import (
    FORM,
    INTS,
    POINTERS,
    ROW,
    RULES,
    THREADS,
    encode_form,
    floats,
    global_row,
    kind,
    run,
    scale_row,
    top,
)
from qnumba.gpu.scalar import LOOKUP, MINIFLOAT

if TYPE_CHECKING:
    from qnumba.gpu.arrays import View
    from qnumba.layout import Plan
    from qnumba.params import Options

_U, _F = types.uint32, types.float32
_WORDS = {8: types.CPointer(_U), 4: types.CPointer(_U), 2: types.CPointer(types.uint16)}
F32, F64, I32, U32 = POINTERS["float32"], POINTERS["float64"], POINTERS["int32"], _WORDS[8]
DTYPES = ("float32", "float16", "bfloat16")
FUSED_BLOCKS = (16, 32, 64, 128)
_WIDE = 16  # bytes of the accesses to numbers
_WORD_ALIGN = {8: 8, 4: 4, 2: 2}
_LEAST, _E4M3, _E2M1 = (8, 0), (8, 9), (10, 0)  # capabilities that have the instructions
_MOST_GROUPS = 2**31 - 2**16
_TAIL = 32  # the fast part of a tensor ends on whole words of every store
_PER_SM = 8


class Runs(NamedTuple):
    """A plan in groups of eight; ``tail`` elements of a per-tensor scheme are left over."""

    layout: str
    rows: int
    cols: int
    block_cols: int
    block_rows: int
    scale_cols: int
    tail: int

    @property
    def across(self) -> int:
        """Power of two of the threads that stand along a row."""
        return min(8, (self.cols - 1).bit_length()) if self.rows > 1 else 8

    @property
    def grid(self) -> int:
        """Blocks of threads."""
        return self.grid_cols * -(-self.rows // (THREADS >> self.across))

    @property
    def grid_cols(self) -> int:
        """Blocks of threads along a row."""
        return -(-self.cols // (1 << self.across))

    @property
    def lanes(self) -> int:
        """Neighbouring threads that surely share a scale: a power of two."""
        most = 1 << min(5, self.across)
        if self.block_cols >= self.cols:
            return most
        return math.gcd(self.block_cols, most)

    def numbers(self) -> tuple[int, ...]:
        """Return what kernels take."""
        return (
            *(self.rows, self.cols, self.across, self.grid_cols),
            *(*divisor(self.block_cols), *divisor(self.block_rows), *divisor(self.grid_cols)),
            self.scale_cols,
        )


RUNS = types.UniTuple(_U, 11)


def divisor(number: int) -> tuple[int, int]:
    """Return (factor, shift) such that n * factor >> shift is n // number, for all n below 2**31.

    factor * number is past 2**shift by less than number, which is at most 2**(shift - 31): too
    little to carry any such n to its next multiple (Granlund and Montgomery, 1994).
    """
    shift = 31 + (number - 1).bit_length()
    return -(-(1 << shift) // number), shift


@lru_cache(maxsize=4096)
def runs_of(plan: Plan) -> Runs | None:
    """Return a plan in groups of eight, or None if it is not made of them."""
    cols, block_cols = plan.cols, min(plan.block_cols, plan.cols)
    if plan.code_bits != plan.value.bits or plan.packed[2] != 1 or len(plan.outer) > 1:
        return None
    if not plan.outer and block_cols == cols:  # one scale
        main = cols // _TAIL * _TAIL
        runs = Runs(fast.TENSOR, 1, main // 8, main // 8, 1, 1, cols - main)
        return runs if 0 < main // 8 < _MOST_GROUPS else None
    padded = plan.row_bytes * 8 != cols * plan.code_bits
    if padded or cols % 8 or block_cols % 8 or plan.size // 8 >= _MOST_GROUPS:
        return None
    (rows, step), layout = (1, 1), fast.ROW
    if plan.outer:
        (rows, step), layout = plan.outer[0], fast.GRID
    return Runs(layout, rows, cols // 8, block_cols // 8, step, -(-cols // block_cols), 0)


def code_name(plan: Plan, capability: tuple[int, ...]) -> str:
    """Return the name of the code in ``codes.CODES``."""
    name, bits = plan.value.name, plan.value.bits
    if kind(plan) == LOOKUP:
        return f"lookup {bits}"
    if kind(plan) != MINIFLOAT:
        return f"{'s' if plan.is_signed else 'u'}{bits}"
    needed = _E2M1 if name == "E2M1" else _E4M3
    return name if capability[:2] >= needed else f"{name} soft"


def coding_of(plan: Plan, options: Options) -> fast.Coding:
    """Return what kernels that encode a plan are compiled for."""
    name = code_name(plan, driver.capability())
    affine, away = plan.scheme.mode == "affine", options.rounding == "away"
    lo = int(plan.value.lo)
    return fast.Coding(name, plan.code_bits, lo, plan.scheme.two_level, affine, away)


def is_aligned(plan: Plan, numbers: View, words: View | None) -> bool:
    """Return whether addresses, dtypes and hardware allow wide accesses."""
    if numbers.dtype not in DTYPES or driver.capability() < _LEAST or numbers.pointer % _WIDE:
        return False
    return words is None or words.pointer % _WORD_ALIGN[plan.code_bits] == 0


def find_range(source: View, plan: Plan, affine: int, keys: Any, flag: int) -> None:
    """Queue the kernel that finds the ranges of blocks in keys, all 0 before."""
    runs = runs_of(plan)
    pointer = POINTERS[source.dtype]
    if runs.layout == fast.TENSOR:
        groups = runs.cols
        most = driver.multiprocessors() * _PER_SM
        grid = min(-(-groups // (2 * THREADS)), most)
        signature = types.void(pointer, _U, INTS, U32, I32)
        arguments = (source.pointer, groups, affine, keys, flag)
        kernel = fast.range_tensor(source.dtype)
        driver.launch(kernel, signature, grid, THREADS, source.stream, arguments)
        return
    signature = types.void(pointer, RUNS, INTS, U32, I32)
    arguments = (source.pointer, runs.numbers(), affine, keys, flag)
    kernel = fast.range_runs(source.dtype, runs.layout, runs.lanes)
    driver.launch(kernel, signature, runs.grid, THREADS, source.stream, arguments)


def settle(keys: int, pair: tuple[int, int], count: int, affine: int, stream: int) -> None:
    """Queue the kernel that turns keys into what the general kernels finish."""
    signature = types.void(U32, F64, F64, INTS, INTS)
    run(fast.settle, signature, count, stream, keys, *pair, count, affine)


def encode(
    source: View,
    plan: Plan,
    options: Options,
    words: View,
    numbers: tuple[int, ...],
    edges: int,
    flag: int,
) -> None:
    """Queue the fast kernel that encodes the groups of a plan with given scales."""
    runs = runs_of(plan)
    kernel = fast.encode_runs(source.dtype, coding_of(plan, options), runs.layout)
    form, row = encode_form(plan, options)
    signature = types.void(
        *(POINTERS[source.dtype], _WORDS[plan.code_bits], RUNS),
        *(F32, F32, I32, F32, I32, FORM, ROW),
    )
    arguments = (source.pointer, words.pointer, runs.numbers(), *numbers, edges, flag, form, row)
    driver.launch(kernel, signature, runs.grid, THREADS, source.stream, arguments)


def decode(words: View, plan: Plan, out: View, numbers: tuple[int, ...], table: int) -> None:
    """Queue the fast kernel that decodes the groups of a plan."""
    runs = runs_of(plan)
    levels = (plan.scheme.mode == "affine", plan.scheme.two_level)
    kernel = fast.decode_runs(
        out.dtype, code_name(plan, _E2M1), plan.code_bits, runs.layout, *levels
    )
    pointers = (_WORDS[plan.code_bits], POINTERS[out.dtype])
    signature = types.void(*pointers, RUNS, F32, F32, I32, F32)
    arguments = (words.pointer, out.pointer, runs.numbers(), *numbers, table)
    driver.launch(kernel, signature, runs.grid, THREADS, words.stream, arguments)


def is_fused(plan: Plan, options: Options) -> bool:
    """Return whether one pass can calibrate and encode: blocks along contiguous memory."""
    runs = runs_of(plan)
    ranged = plan.scheme.mode != "affine" and options.method == "minmax"
    if runs is None or not ranged or runs.layout != fast.ROW:
        return False
    return plan.block_cols in FUSED_BLOCKS and plan.cols % plan.block_cols == 0


def find_global(source: View, plan: Plan, options: Options, keys: int, over: int) -> None:
    """Queue the kernel that turns the largest magnitude into the global scale."""
    signature = types.void(U32, F32, floats(4), types.float64, floats(2), INTS)
    rule = RULES[options.scale_rounding]
    arguments = (keys, over, scale_row(plan), top(plan), global_row(plan), rule)
    driver.launch(general.finish_global, signature, 1, 1, source.stream, arguments)


def quantize_blocks(
    source: View,
    plan: Plan,
    options: Options,
    words: View,
    numbers: tuple[int, ...],
    edges: int,
    flag: int,
) -> None:
    """Queue the kernel that calibrates and encodes in one pass."""
    groups = 2 if plan.block_cols == FUSED_BLOCKS[0] and source.dtype != "float32" else 1
    lanes = plan.block_cols // 8 // groups
    rule, power = RULES[options.scale_rounding], (plan.value.emax, plan.value.mantissa_bits)
    coding = coding_of(plan, options)
    kernel = fast.quantize_blocks(source.dtype, coding, plan.scale.name, rule, power, lanes, groups)
    form, row = encode_form(plan, options)
    signature = types.void(
        *(POINTERS[source.dtype], _WORDS[plan.code_bits], _U, F32, F32, F32, I32),
        *(_F, FORM, ROW),
    )
    count = plan.size // 8 // groups
    arguments = (source.pointer, words.pointer, count, *numbers, edges, flag, top(plan))
    run(kernel, signature, count, source.stream, *arguments, form, row)
