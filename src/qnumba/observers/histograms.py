"""Observers that keep a histogram of every block: percentiles, and the scale of least error.

The bins are those of the leading bits of a number: its sign, its exponent and ``bits`` bits of its
mantissa. They need no range known beforehand, any two histograms add up, and all numbers of a bin
agree to within 2**-bits, relative. Zero has a bin of its own. Only bins that are occupied take
memory.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.errors import SchemeError, cut
from qnumba.fields import is_several
from qnumba.formats import SCALES
from qnumba.observers.base import (
    Observer,
    Range,
    Summary,
    block_index,
    range_params,
    require_number,
)
from qnumba.observers.groups import group_sums, pieces
from qnumba.observers.ranges import join_ranges, range_of
from qnumba.params import QParams
from qnumba.quantize import quantize
from qnumba.reference import store_scale

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from qnumba.layout import Plan
    from qnumba.params import Nonfinite, ScaleRounding
    from qnumba.scheme import Scheme

FRACTION, EXPONENTS = 52, 2048  # of a float64: bits of its fraction, number of its exponents
MAX_BITS = 23
BATCH = 1 << 20  # elements that a search for the best scale quantizes at a time

# The candidates of MSE: four octaves, in steps of 4.4 percent.
RATIOS = tuple(2.0 ** (-step / 16) for step in range(65))


class _Histogram(Observer):
    """Keeps, for every block, the range and the number of values in each occupied bin."""

    free = ("keys", "counts")

    def __init__(
        self,
        scheme: Scheme | str | None = None,
        *,
        bits: int = 10,
        nonfinite: Nonfinite = "raise",
    ) -> None:
        super().__init__(scheme, nonfinite=nonfinite)
        fix = f"give a whole number from 0 to {MAX_BITS}"
        require_number("bits", bits, lambda number: number in range(MAX_BITS + 1), fix)
        self.bits = bits

    @property
    def _bins(self) -> int:
        """Bins of one block: more than twice the magnitudes, an even power of two."""
        return EXPONENTS << (self.bits + 2)

    def _summarize(self, numbers: NDArray[Any], finite: NDArray[np.bool_], layout: Plan) -> Summary:
        found = range_of(numbers, layout)
        found |= {"keys": np.zeros(0, np.int64), "counts": np.zeros(0, np.int64)}
        index = block_index(layout)
        for values, counted, places in pieces(numbers, finite, index):
            keys = self._keys(values[counted].astype(np.float64), places[counted])
            keys, (counts,) = group_sums(keys, [np.ones(keys.size, np.int64)])
            found |= _add_counts(found, {"keys": keys, "counts": counts})
        return found

    def _join(self, first: Summary, second: Summary) -> Summary:
        return join_ranges(first, second) | _add_counts(first, second)

    def _keys(self, numbers: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return one integer for block and bin: blocks one after another, bins ascending."""
        bits = np.abs(numbers).view(np.int64)
        sizes = np.where(bits == 0, 0, (bits >> (FRACTION - self.bits)) + 1)
        return places * self._bins + self._bins // 2 + np.where(numbers < 0, -sizes, sizes)

    def _split(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return blocks, and bins as signed numbers: 0 for zero, the magnitudes from 1 on."""
        places, bins = np.divmod(keys, self._bins)
        return places, bins - self._bins // 2

    def _edges(self, bins: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the end of bins that is farther from 0; infinity for the last."""
        edges = (np.abs(bins) << (FRACTION - self.bits)).view(np.float64)
        return np.copysign(np.where(bins == 0, 0, edges), bins)

    def _middles(self, bins: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the middle of bins."""
        starts = (np.abs(bins) - 1) << (FRACTION - self.bits)
        middles = (starts | (1 << (FRACTION - self.bits - 1))).view(np.float64)
        return np.copysign(np.where(bins == 0, 0, middles), bins)


class Percentile(_Histogram):
    """Cuts the range of every block at a percentile, so that a few outliers do not stretch it.

    Symmetric schemes: the smallest magnitude that at least ``percentile`` percent of the
    magnitudes do not exceed. Affine schemes: the ends of the range that leave out half of the rest
    on each side. The true percentile p is found up to the width of a bin: the result is at least p,
    at most ``p * (1 + 2**-bits)`` (for normal numbers of the compute type) and never beyond the
    largest value seen, so that 100 percent are AbsMax and MinMax exactly. The order of chunks and
    merges changes nothing, not a bit.

    Parameters
    ----------
    scheme, nonfinite
        As for ``Observer``.
    percentile : float
        Above 0, up to 100.
    bits : int
        Bits of the mantissa that a bin keeps, 0 to 23.
    """

    settings = ("percentile", "bits")

    def __init__(
        self,
        scheme: Scheme | str | None = None,
        *,
        percentile: float = 99.9,
        bits: int = 10,
        nonfinite: Nonfinite = "raise",
    ) -> None:
        super().__init__(scheme, bits=bits, nonfinite=nonfinite)
        fix = "give a number above 0, up to 100"
        require_number("percentile", percentile, lambda number: 0 < number <= 100, fix)  # noqa: PLR2004 - percent
        self.percentile = percentile

    def _range(self, summary: Summary, scheme: Scheme) -> Range:
        rest = 1 - Fraction(str(self.percentile)) / 100  # as written: 99.9 is 999/1000
        lo, hi = summary["lo"], summary["hi"]
        places, bins = self._split(summary["keys"])
        if scheme.mode != "affine":
            bins = np.abs(bins)
            amax = np.maximum(-lo, hi)
            end = np.minimum(self._cut(places, bins, summary["counts"], 1 - rest, lo.shape), amax)
            return -end, end
        share = 1 - rest / 2
        upper = self._cut(places, bins, summary["counts"], share, lo.shape)
        lower = self._cut(places, -bins, summary["counts"], share, lo.shape)
        return -np.clip(lower, 0, -lo), np.clip(upper, 0, hi)

    def _cut(
        self,
        places: NDArray[np.int64],
        bins: NDArray[np.int64],
        counts: NDArray[np.int64],
        share: Fraction,
        grid: tuple[int, ...],
    ) -> NDArray[np.float64]:
        """Return each block's far edge of the bin in which a share of the values is reached."""
        blocks = math.prod(grid)
        keys, (counts,) = group_sums(places * self._bins + bins + self._bins // 2, [counts])
        places, bins = self._split(keys)
        upto = np.cumsum(counts)
        ends = np.searchsorted(places, np.arange(blocks), side="right")
        totals = np.concatenate([[0], upto])[ends]
        before = np.concatenate([[0], totals[:-1]])
        ranks = [math.ceil(share * int(n)) for n in totals - before]
        found = np.searchsorted(upto, before + np.maximum(ranks, 1))
        filled = totals > before
        edges = np.zeros(blocks)
        edges[filled] = self._edges(bins[found[filled]])
        return edges.reshape(grid)


class MSE(_Histogram):
    """Finds, for every block, the scale of the least mean squared error, by trying a grid.

    The candidates are the min-max range times each of ``ratios``; the scale of each is stored as
    the scheme stores scales before it is tried. In two-level schemes the global scale is that of
    the min-max range, and the block scales are tried. Of equal errors the first wins. The errors
    are those of the values moved to the middle of their bin, by at most ``2**-(bits + 1)`` of
    themselves. The order of chunks and merges changes nothing, not a bit.

    Parameters
    ----------
    scheme, nonfinite
        As for ``Observer``.
    ratios : sequence of float
        What the range is multiplied by, each above 0, up to 1. Default: 2**(-i/16), i = 0 to 64.
    bits : int
        Bits of the mantissa that a bin keeps, 0 to 23.
    """

    settings = ("ratios", "bits")

    def __init__(
        self,
        scheme: Scheme | str | None = None,
        *,
        ratios: Sequence[float] = RATIOS,
        bits: int = 10,
        nonfinite: Nonfinite = "raise",
    ) -> None:
        super().__init__(scheme, bits=bits, nonfinite=nonfinite)
        fix = "give a sequence of numbers above 0, up to 1"
        if not is_several(ratios) or not len(ratios):
            message = f"ratios are {cut(repr(ratios))}; {fix}"
            raise SchemeError(message, field="ratios", value=ratios, fix=fix)
        for ratio in ratios:
            require_number("ratios", ratio, lambda number: 0 < number <= 1, fix)
        self.ratios = tuple(float(ratio) for ratio in ratios)

    def _range(self, summary: Summary, scheme: Scheme) -> Range:
        del scheme
        return summary["lo"], summary["hi"]

    def _params(self, summary: Summary, scheme: Scheme, rule: ScaleRounding) -> QParams:
        widest = super()._params(summary, scheme, rule)
        candidates = [self._candidate(summary, scheme, rule, widest, r) for r in self.ratios]
        places, bins = self._split(summary["keys"])
        errors = np.zeros((len(candidates), widest.scales.size))
        for blocks, values, weights in self._rows(places, bins, summary):
            for error, candidate in zip(errors, candidates, strict=True):
                decoded = _round_trip(values.astype(self._dtype), scheme, candidate, blocks)
                error[blocks] = _error(values, decoded, weights)
        best = errors.argmin(axis=0).reshape(widest.scales.shape)
        scales = _pick([candidate.scales for candidate in candidates], best)
        points = None
        if scheme.mode == "affine":
            points = _pick([candidate.zero_points for candidate in candidates], best)
        return QParams(scales, widest.global_scale, points)

    def _candidate(
        self,
        summary: Summary,
        scheme: Scheme,
        rule: ScaleRounding,
        widest: QParams,
        ratio: float,
    ) -> QParams:
        if not scheme.two_level:
            lo, hi = (
                summary[end].astype(self._dtype) * self._dtype.type(ratio) for end in ("lo", "hi")
            )
            return range_params(lo, hi, scheme, rule)
        wanted = widest.scales.astype(np.float64) * ratio
        return QParams(store_scale(wanted, SCALES[scheme.scale_dtype], rule), widest.global_scale)

    def _rows(
        self, places: NDArray[np.int64], bins: NDArray[np.int64], summary: Summary
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]]:
        """Yield blocks together with their values as rows, and how often each was seen."""
        values, counts = self._middles(bins), summary["counts"]
        lo, hi = np.ravel(summary["lo"]), np.ravel(summary["hi"])
        values = np.clip(values, lo[places], hi[places])
        starts = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]])[: places.size])
        lengths = np.diff(np.append(starts, places.size))
        width = int(lengths.max(initial=1))
        step = max(BATCH // width, 1)
        for first in range(0, starts.size, step):
            some = slice(first, first + step)
            column = np.arange(width)
            inside = column < lengths[some, np.newaxis]
            index = np.where(inside, starts[some, np.newaxis] + column, 0)
            yield places[starts[some]], values[index] * inside, counts[index] * inside


def _pick(candidates: Sequence[Any], best: NDArray[np.int64]) -> NDArray[Any]:
    """Return, for each block, its number in the candidate of the given index."""
    return np.asarray(np.take_along_axis(np.stack(candidates), best[np.newaxis], axis=0)[0])


def _add_counts(first: Summary, second: Summary) -> Summary:
    keys, counts = (np.concatenate([first[name], second[name]]) for name in ("keys", "counts"))
    keys, (counts,) = group_sums(keys, [counts])
    return {"keys": keys, "counts": counts}


def _round_trip(
    rows: NDArray[Any], scheme: Scheme, params: QParams, blocks: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return rows quantized, each as one block with the scale of the block it stands for."""
    points = None if params.zero_points is None else params.zero_points.reshape(-1, 1)[blocks]
    scales, shape = params.scales.reshape(-1, 1)[blocks], rows.shape
    if scheme.block is None:
        rows, scales = rows[0], scales.reshape(())
        points = None if points is None else points.reshape(())
    block = None if scheme.block is None else shape[1]
    one = scheme.replace(block=block, pack_axis=0)
    q = quantize(rows, one, params=QParams(scales, params.global_scale, points))
    return q.dequantize(np.float64).reshape(shape)


def _error(
    rows: NDArray[np.float64], decoded: NDArray[np.float64], weights: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the sum of squares of every row, in units of its largest value, so none overflows."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    relative = (decoded - rows) / np.where(largest == 0, 1, largest)
    return np.asarray((weights * relative**2).sum(axis=1))
