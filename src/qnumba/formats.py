"""The number formats, one row each: value types, scale dtypes, stores and lookup tables.

A row holds numbers only. Everything else about a format (its largest code, the meaning of each
code, its step) is derived from the row, so that a row cannot contradict itself.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ValueName = Literal[
    "Q8F", "Q4F", "Q2F", "Q8S", "Q4S", "Q2S", "U8", "U4", "U2", "E4M3", "E5M2", "E2M1"
]
ScaleName = Literal["F32", "F16", "BF16", "UE8M0", "UE4M3"]
StoreName = Literal["native", "packed_u32", "packed_u8", "packed_native"]
ModeName = Literal["symmetric", "affine", "lookup"]

MODES: tuple[ModeName, ...] = ("symmetric", "affine", "lookup")
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
MAX_BLOCK_RANK = 5
MAX_BLOCK_EXTENT = 2**31 - 1
MAX_RANK = 64  # what NumPy allows
MAX_ELEMENTS = 2**60 - 1  # as float64 they still have a size in bytes


class ValueType(NamedTuple):
    """What one code can stand for.

    ``kind`` is ``"int"`` (two's complement), ``"uint"`` or ``"float"`` (sign, exponent, mantissa).
    ``mantissa_bits``, ``emax`` and ``tiny`` (the smallest positive number) describe minifloats.
    """

    name: ValueName
    bits: int
    lo: float
    hi: float
    kind: Literal["int", "uint", "float"]
    mantissa_bits: int = 0
    emax: int = 0
    tiny: float = 1.0

    @property
    def half_range(self) -> float:
        """Half the distance between the ends of the range: amax / half_range is the scale."""
        return (self.hi - self.lo) / 2


class ScaleType(NamedTuple):
    """A dtype scales are stored in: the multiples of the local step, from 0 to ``max``.

    The step at a number with exponent k is ``max(2**(k - mantissa_bits), tiny)``.
    """

    name: ScaleName
    bytes: int
    mantissa_bits: int
    tiny: float
    max: float

    @property
    def zero(self) -> float:
        """What a scale of 0 is stored as: 0, or the smallest scale of a dtype without a zero."""
        return self.tiny if self.name == "UE8M0" else 0.0


class Store(NamedTuple):
    """How codes sit in memory: the dtype of a word and its bits (0: one code in each word)."""

    name: StoreName
    word: str
    word_bits: int
    values: frozenset[str]


VALUES: dict[str, ValueType] = {
    row.name: row
    for row in (
        ValueType("Q8F", 8, -128, 127, "int"),
        ValueType("Q4F", 4, -8, 7, "int"),
        ValueType("Q2F", 2, -2, 1, "int"),
        ValueType("Q8S", 8, -127, 127, "int"),
        ValueType("Q4S", 4, -7, 7, "int"),
        ValueType("Q2S", 2, -1, 1, "int"),
        ValueType("U8", 8, 0, 255, "uint"),
        ValueType("U4", 4, 0, 15, "uint"),
        ValueType("U2", 2, 0, 3, "uint"),
        ValueType("E4M3", 8, -448, 448, "float", 3, 8, 2.0**-9),
        ValueType("E5M2", 8, -57344, 57344, "float", 2, 15, 2.0**-16),
        ValueType("E2M1", 4, -6, 6, "float", 1, 2, 0.5),
    )
}

SCALES: dict[str, ScaleType] = {
    row.name: row
    for row in (
        ScaleType("F32", 4, 23, 2.0**-149, (2 - 2.0**-23) * 2.0**127),
        ScaleType("F16", 2, 10, 2.0**-24, 65504.0),
        ScaleType("BF16", 2, 7, 2.0**-133, (2 - 2.0**-7) * 2.0**127),
        ScaleType("UE8M0", 1, 0, 2.0**-127, 2.0**127),
        ScaleType("UE4M3", 1, 3, 2.0**-9, 448.0),
    )
}

# Block scales that a global scale can stand over: the largest must leave float32 room above it.
TWO_LEVEL_SCALES = ("F16", "UE4M3")
GLOBAL_TINY = 2.0**-126

_ANY = frozenset(VALUES)
_SUB_BYTE = frozenset(name for name, row in VALUES.items() if row.bits in {2, 4})
STORES: dict[str, Store] = {
    row.name: row
    for row in (
        Store("native", "u1", 0, _ANY),
        Store("packed_u32", "<u4", 32, _ANY),
        Store("packed_u8", "u1", 8, _SUB_BYTE),
        Store("packed_native", "u1", 8, frozenset({"E2M1"})),
    )
}

# NF4: quantiles of a normal distribution, from Dettmers et al., "QLoRA" (2023), appendix E.
TABLES: dict[str, tuple[float, ...]] = {
    "nf4": tuple(
        float(np.float32(entry))
        for entry in (
            -1.0,
            -0.6961928009986877,
            -0.5250730514526367,
            -0.39491748809814453,
            -0.28444138169288635,
            -0.18477343022823334,
            -0.09105003625154495,
            0.0,
            0.07958029955625534,
            0.16093020141124725,
            0.24611230194568634,
            0.33791524171829224,
            0.44070982933044434,
            0.5626170039176941,
            0.7229568362236023,
            1.0,
        )
    )
}


def default_store(value: str) -> StoreName:
    """Return the store a scheme gets when it names none."""
    if value not in _SUB_BYTE:
        return "native"
    return "packed_native" if value == "E2M1" else "packed_u32"


def global_max(scale: ScaleType) -> float:
    """Return the largest float32 global scale whose product with any block scale is finite."""
    limit = SCALES["F32"].max
    largest = np.float32(limit / scale.max)  # rounded to nearest: maybe one step too far
    if float(largest) * scale.max > limit:
        largest = np.nextafter(largest, np.float32(0))
    return float(largest)


@lru_cache
def decode_table(value: str) -> NDArray[np.float32]:
    """Return the number each code of a value type stands for, indexed by its bit pattern.

    Returns
    -------
    numpy.ndarray
        float32, length ``2**bits``, read-only. Minifloat NaN codes hold NaN.
    """
    row = VALUES[value]
    codes = np.arange(2**row.bits)
    if row.kind == "uint":
        numbers = codes.astype(np.float32)
    elif row.kind == "int":
        numbers = np.where(codes >= codes.size // 2, codes - codes.size, codes).astype(np.float32)
    else:
        half = [_minifloat(row, code) for code in range(codes.size // 2)]
        numbers = np.array(half + [-number for number in half], np.float32)
    numbers.flags.writeable = False
    return numbers


def _minifloat(row: ValueType, code: int) -> float:
    """Return the number a positive minifloat code stands for (OCP OFP8 and MX v1.0)."""
    exponent, mantissa = divmod(code, 2**row.mantissa_bits)
    if exponent == 0:
        number = float(mantissa * row.tiny)
    else:
        number = math.ldexp((2**row.mantissa_bits + mantissa) * row.tiny, exponent - 1)
    if number <= row.hi:
        return number
    has_infinity = row.name == "E5M2" and mantissa == 0
    return float("inf") if has_infinity else float("nan")


@lru_cache
def thresholds(table: tuple[float, ...], dtype: str) -> NDArray[np.floating[Any]]:
    """Return where the nearest entry of an ascending table changes, for numbers of ``dtype``.

    The index of the entry nearest to t, ties to the lower one, is the count of thresholds below t.
    A midpoint that ``dtype`` cannot hold is rounded down, which moves no number of that dtype
    across it.

    Returns
    -------
    numpy.ndarray
        ``dtype``, length ``len(table) - 1``, read-only.
    """
    kind: type[np.floating[Any]] = np.dtype(dtype).type
    edges = np.array([_round_down(kind, pair) for pair in pairwise(table)], kind)
    for i in reversed(range(edges.size)):
        if table[i] == table[i + 1]:  # no number is nearer to the second of two equal entries
            edges[i] = edges[i + 1] if i + 1 < edges.size else np.inf
    edges.flags.writeable = False
    return edges


def _round_down(dtype: type[np.floating[Any]], pair: tuple[float, float]) -> np.floating[Any]:
    """Return the largest ``dtype`` number at or below the exact middle of two numbers."""
    middle = (Fraction(pair[0]) + Fraction(pair[1])) / 2
    edge = dtype(float(middle))
    while Fraction(float(edge)) > middle:
        edge = np.nextafter(edge, dtype(-np.inf))
    return edge
