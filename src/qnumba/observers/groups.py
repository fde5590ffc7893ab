"""Sums over groups of numbers that have the same key, and arrays cut into pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

PIECE = 1 << 18  # elements: bounds the memory an observer needs beside a chunk
DENSE = 4  # keys in the span of a table, for each element, up to which a table is quicker


def pieces(*arrays: NDArray[Any]) -> Iterator[tuple[NDArray[Any], ...]]:
    """Go through arrays of one size together, in pieces of at most PIECE elements."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, PIECE):
        yield tuple(array[start : start + PIECE] for array in flat)


def group_sums(
    keys: NDArray[np.int64], columns: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return the distinct keys in ascending order, and each column's sum over every key.

    Sums are exact: columns are integers of at least 0, and their sums are below 2**53.
    """
    if not keys.size:
        return keys, list(columns)
    lo = keys.min()
    span = int(keys.max() - lo) + 1
    if span <= DENSE * keys.size:
        places = keys - lo
        found = np.flatnonzero(np.bincount(places))
        sums = [np.bincount(places, weights=column)[found] for column in columns]
        return found + lo, [column.astype(np.int64) for column in sums]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[starts], [np.add.reduceat(column[order], starts) for column in columns]
