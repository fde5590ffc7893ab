"""Observers that keep a number or two for each block: ranges, largest and mean magnitudes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from qnumba.errors import SchemeError
from qnumba.observers.base import (
    Observer,
    Range,
    Summary,
    block_index,
    reduce_blocks,
    require_number,
)
from qnumba.observers.groups import group_sums, pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qnumba.layout import Plan
    from qnumba.params import Method, Nonfinite
    from qnumba.scheme import Scheme

MANTISSA = 53  # bits of a float64
HALF = 27  # bits of the low part of a mantissa
UNIT_EXPONENT = -1126  # every float64 is a whole number of 2**UNIT_EXPONENT with 53 bits to spare
SHIFTS = 4096  # more than there are float64 exponents


class MinMax(Observer):
    """Keeps the smallest and the largest value of every block.

    Its parameters are those of ``calibrate`` on all chunks in one array, bit for bit, whatever the
    order of the chunks. Its arguments are those of ``Observer``.

    Examples
    --------
    >>> observer = MinMax("uint8")
    >>> for chunk in (np.zeros(3), np.arange(4.0), np.array([-1.0, 0.5])):
    ...     _ = observer.update(chunk)
    >>> observer.params().zero_points
    array(64, dtype=int32)
    """

    def _summarize(self, numbers: NDArray[Any], finite: NDArray[np.bool_], layout: Plan) -> Summary:
        del finite
        return range_of(numbers, layout)

    def _join(self, first: Summary, second: Summary) -> Summary:
        return join_ranges(first, second)

    def _range(self, summary: Summary, scheme: Scheme) -> Range:
        del scheme
        return summary["lo"], summary["hi"]


class AbsMax(Observer):
    """Keeps the largest magnitude of every block: half of what MinMax keeps, for symmetric schemes.

    Its parameters are those of ``calibrate`` on all chunks in one array, bit for bit, whatever the
    order of the chunks. Its arguments are those of ``Observer``.
    """

    def _summarize(self, numbers: NDArray[Any], finite: NDArray[np.bool_], layout: Plan) -> Summary:
        del finite
        ends = range_of(numbers, layout)
        return {"amax": np.maximum(ends["hi"], -ends["lo"])}

    def _join(self, first: Summary, second: Summary) -> Summary:
        return {"amax": np.maximum(first["amax"], second["amax"])}

    def _range(self, summary: Summary, scheme: Scheme) -> Range:
        _require_symmetric(self, scheme)
        return -summary["amax"], summary["amax"]


class AbsMean(Observer):
    """Keeps the mean magnitude of every block (BitNet b1.58), for symmetric one-level schemes.

    The sums are exact (integers, in units of 2**-1126), so the order of the chunks and of merges
    changes nothing, not a bit. ``calibrate(method="absmean")`` adds in float64 instead: its mean of
    n numbers is within (n/65536 + 264) * 2**-53 of this one, relative, so that after rounding to
    float32 the two differ rarely, and then by one unit in the last place. Its arguments are those
    of ``Observer``.
    """

    method: ClassVar[Method] = "absmean"

    def _summarize(self, numbers: NDArray[Any], finite: NDArray[np.bool_], layout: Plan) -> Summary:
        blocks = np.prod(layout.grid, dtype=np.int64)
        total = np.array([0] * blocks, object)
        count = np.zeros(blocks, np.int64)
        index = block_index(layout).reshape(-1)
        for sizes, counted, places in pieces(numbers, finite, index):
            count += np.bincount(places[counted], minlength=blocks)
            for place, part in _exact_sums(np.abs(sizes.astype(np.float64)), places):
                total[place] += part
        return {"total": total.reshape(layout.grid), "count": count.reshape(layout.grid)}

    def _join(self, first: Summary, second: Summary) -> Summary:
        total = np.asarray(first["total"] + second["total"], object)
        return {"total": total, "count": np.asarray(first["count"] + second["count"])}

    def _range(self, summary: Summary, scheme: Scheme) -> Range:
        del scheme
        unit = 1 << -UNIT_EXPONENT
        pairs = zip(np.ravel(summary["total"]), np.ravel(summary["count"]), strict=True)
        means = [int(total) / (unit * max(int(count), 1)) for total, count in pairs]
        mean = np.array(means, np.float64).reshape(np.shape(summary["count"]))
        return -mean, mean


class MovingAverage(Observer):
    """Averages the ranges of the chunks, later chunks counting more.

    A chunk's range weighs ``1 - rate`` times that of the next one; the weighted ranges are divided
    by the sum of their weights. (torch's MovingAverageMinMaxObserver instead gives the first chunk
    all the weight that is missing.) The order of chunks matters here; ``merge`` means that the
    other's chunks came after this one's, up to float64 rounding. A symmetric scheme takes the
    larger end of the averaged range. Empty chunks weigh nothing.

    Parameters
    ----------
    scheme, nonfinite
        As for ``Observer``.
    rate : float
        From 0 (a plain mean) up to 1 (the last chunk only).
    """

    settings = ("rate",)
    free = ("weight", "chunks")

    def __init__(
        self,
        scheme: Scheme | str | None = None,
        *,
        rate: float = 0.01,
        nonfinite: Nonfinite = "raise",
    ) -> None:
        super().__init__(scheme, nonfinite=nonfinite)
        require_number("rate", rate, lambda number: 0 <= number <= 1, "give a number from 0 to 1")
        self.rate = float(rate)

    def _summarize(self, numbers: NDArray[Any], finite: NDArray[np.bool_], layout: Plan) -> Summary:
        del finite
        ends = range_of(numbers.astype(np.float64), layout)
        weighs = int(numbers.size > 0)
        return ends | {"weight": float(weighs), "chunks": weighs}

    def _join(self, first: Summary, second: Summary) -> Summary:
        fade = (1 - self.rate) ** int(second["chunks"])
        faded = {name: first[name] * fade + second[name] for name in ("lo", "hi", "weight")}
        return faded | {"chunks": int(first["chunks"]) + int(second["chunks"])}

    def _range(self, summary: Summary, scheme: Scheme) -> Range:
        del scheme
        weight = summary["weight"] or 1.0
        return summary["lo"] / weight, summary["hi"] / weight


def range_of(numbers: NDArray[Any], layout: Plan) -> Summary:
    """Return the range of every block, stretched to hold 0, as ``lo`` and ``hi``."""
    zero = numbers.dtype.type(0)
    lo = np.minimum(reduce_blocks(numbers, np.minimum, layout), zero)
    hi = np.maximum(reduce_blocks(numbers, np.maximum, layout), zero)
    return {"lo": lo, "hi": hi}


def join_ranges(first: Summary, second: Summary) -> Summary:
    """Return the ranges that hold two ranges."""
    lo, hi = np.minimum(first["lo"], second["lo"]), np.maximum(first["hi"], second["hi"])
    return {"lo": lo, "hi": hi}


def _require_symmetric(observer: Observer, scheme: Scheme) -> None:
    if scheme.mode == "affine":
        fix = f"use MinMax({str(scheme)!r}), or a symmetric scheme"
        message = f"affine mode needs a range, and {type(observer).__name__} keeps none; {fix}"
        raise SchemeError(message, field="mode", value=scheme.mode, fix=fix)


def _exact_sums(sizes: NDArray[np.float64], places: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return sums in units of 2**UNIT_EXPONENT: pairs of a place and a part of its sum.

    A number is a mantissa of 53 bits times a power of two. Mantissas of one exponent are added as
    integers, in two halves that leave room for 2**36 of them.
    """
    mantissas, exponents = np.frexp(sizes)
    whole = (mantissas * 2.0**MANTISSA).astype(np.int64)
    keys = places * SHIFTS + (exponents - MANTISSA - UNIT_EXPONENT)
    halves = (whole >> HALF, whole & (2**HALF - 1))
    keys, (high, low) = group_sums(keys, halves)
    parts = zip(keys.tolist(), high.tolist(), low.tolist(), strict=True)
    return [(key // SHIFTS, ((h << HALF) + w) << key % SHIFTS) for key, h, w in parts]
