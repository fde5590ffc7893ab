"""Look for cliffs: time every combination of the scheme space, and list the slowest.

    python benchmarks/cliffs.py                        # a few minutes on one core
    python benchmarks/cliffs.py --only "pack_axis=1"   # schemes whose text has these words
    python benchmarks/cliffs.py --forms plain --worst 30

Every value type, mode, scale dtype, store and packed axis meets every kind of block on a plain
array; every value type and mode meets every kind of block on arrays of other forms. Ratios are to
the loop that moves as many bytes (for strided arrays: as many values). The slowest of every kind
(mode, block, packed axis and form) are timed again, longer, before they are listed. Nothing is to
be below the floor of qnumba.bench.cases.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from functools import partial
from itertools import product
from operator import attrgetter
from typing import NamedTuple

import numpy as np

import qnumba as qn
from qnumba.bench.cases import FLOOR, ITEM, MIB
from qnumba.bench.measure import interleaved, take_cores
from qnumba.bench.rooflines import roofline
from qnumba.formats import MODES, SCALES, STORES, VALUES
from qnumba.inputs import float_dtype
from qnumba.scheme import Scheme

BLOCKS = (8, 16, 32, 64, 128, 256, (32, 1), (4, 32), (32, 32), (128, 128))
COLUMNS = 4096
QUICK_ROUNDS, AGAIN, SECONDS = 4, 2, 0.2  # the slowest are timed again: so many times the listed

FORMS = {
    "plain": lambda x: x,
    "4095 columns": lambda x: shaped(x, 4095),
    "100 columns": lambda x: shaped(x, 100),
    "33 columns": lambda x: shaped(x, 33),
    "every other column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "columns reversed": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "Fortran order": np.asfortranarray,
    "float16": lambda x: x.astype(np.float16),
    "bfloat16": lambda x: x.astype(float_dtype("bfloat16")),
}


class Found(NamedTuple):
    """What one combination reached."""

    ratio: float
    speed: float
    op: str
    form: str
    scheme: Scheme

    @property
    def kind(self):
        """Return what combinations share that differ in value type, scale dtype or store."""
        return self.form, self.scheme.mode, self.scheme.block, self.scheme.pack_axis

    @property
    def name(self):
        """Return the scheme's text, without the numbers of a table."""
        return re.sub(r"table=\S+", "table=...", str(self.scheme))


def shaped(x, columns):
    """Return as many whole rows of so many columns as an array fills."""
    return x.reshape(-1)[: x.size // columns * columns].reshape(-1, columns)


def scheme_of(value, mode, store, axis, levels):
    """Return a scheme, or None where there is none of these parts."""
    table = np.linspace(-1, 1, 2 ** VALUES[value].bits) if mode == "lookup" else None
    try:
        scheme = Scheme(value, mode=mode, store=store, pack_axis=axis, table=table, **levels)
    except qn.SchemeError:
        return None
    return scheme if scheme.pack_axis == axis else None  # the native store packs nothing


def every_level():
    """Yield the arguments of every kind of scales."""
    for scale in SCALES:
        yield {"tensor_scale": scale}
    for block, scale, above in product(BLOCKS, SCALES, (None, "F32")):
        yield {"block": block, "block_scale": scale, "tensor_scale": above}


def combinations(forms):
    """Yield every form and scheme to time."""
    plain = product(VALUES, MODES, STORES, (0, 1), every_level())
    others = list(
        product(
            VALUES,
            MODES,
            (None,),
            (0,),
            [{}, *({"block": b, "block_scale": "F32"} for b in BLOCKS)],
        )
    )
    for form in forms:
        for parts in plain if form == "plain" else others:
            scheme = scheme_of(*parts)
            if scheme is not None:
                yield form, scheme


def quickly(calls):
    """Return the shortest time of every call in a few rounds; the first only warms up."""
    best = dict.fromkeys(calls, math.inf)
    for _, (name, call) in product(range(QUICK_ROUNDS), calls.items()):
        start = time.perf_counter()
        call()
        best[name] = min(best[name], time.perf_counter() - start)
    return best


carefully = partial(interleaved, seconds=SECONDS)


class Arrays:
    """The arrays of one form, and the loops with their traffic."""

    def __init__(self, mebibytes):
        rows = mebibytes * MIB // (4 * COLUMNS)
        self.plain = np.random.default_rng(0).standard_normal((rows, COLUMNS), np.float32)
        self.form = None

    def calls(self, form, scheme):
        """Return the calls to time for a scheme: ours, and what memory allows."""
        if form != self.form:
            self.form, self.x = form, FORMS[form](self.plain)
            dense = np.ascontiguousarray(self.x)
            item = dense.itemsize
            names = {1: f"r{item}w1", 2: f"r{item}+r{item}w1"}
            self.limits = {passes: roofline(name, dense, 1) for passes, name in names.items()}
            is_decoded = item == ITEM and self.x.flags.c_contiguous
            self.out = np.empty_like(dense) if is_decoded else None
            self.limit_back = roofline("r1w4", dense, 1) if is_decoded else None
        q = qn.quantize(self.x, scheme)
        passes = 2 if scheme.block is None or scheme.tensor_scale else 1
        calls = {
            "quantize": partial(qn.quantize, self.x, scheme, out=q),
            "quantize limit": self.limits[passes],
        }
        if self.out is not None:
            calls |= {
                "dequantize": partial(q.dequantize, out=self.out),
                "dequantize limit": self.limit_back,
            }
        return calls

    def measured(self, form, scheme, timed):
        """Yield the figures of a scheme, from a function that times calls."""
        times = timed(self.calls(form, scheme))
        for op in ("quantize", "dequantize"):
            if op in times:
                limit, speed = times[f"{op} limit"], self.x.nbytes / times[op] / 1e9
                yield Found(limit / times[op], speed, op, form, scheme)


by_ratio = attrgetter("ratio")


class Group(NamedTuple):
    """What was found of one operation on plain arrays, or on those of other forms."""

    title: str
    count: int
    below: int
    slowest: list[Found]


def search(forms=tuple(FORMS), only="", mebibytes=8, worst=10):
    """Time combinations, then the slowest again, and return them in groups.

    Parameters
    ----------
    forms : sequence of str
        Names of ``FORMS``.
    only : str
        Words that the text of a scheme must have.
    mebibytes : int
        Size of the array of float32.
    worst : int
        How many of a group to return.
    """
    arrays = Arrays(mebibytes)
    found = []
    for form, scheme in combinations(forms):
        if only in str(scheme):
            found += arrays.measured(form, scheme, quickly)
            if sys.stderr.isatty():
                print(f"\r{len(found)} {form} {scheme!s:<60.60}", end="", file=sys.stderr)
    groups = []
    for op, is_plain in product(("quantize", "dequantize"), (True, False)):
        group = [one for one in found if one.op == op and (one.form == "plain") == is_plain]
        slowest = {one.kind: one for one in sorted(group, key=by_ratio, reverse=True)}
        again = [
            one
            for slow in sorted(slowest.values(), key=by_ratio)[: AGAIN * worst]
            for one in arrays.measured(slow.form, slow.scheme, carefully)
            if one.op == op
        ]
        below = sum(one.ratio < FLOOR for one in group)
        title = f"{op}, {'plain arrays' if is_plain else 'arrays of other forms'}"
        groups.append(Group(title, len(group), below, sorted(again, key=by_ratio)[:worst]))
    return groups


def main():
    """Search, and list the slowest."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=8, help="size of the array of float32")
    parser.add_argument("--worst", type=int, default=10, help="how many to list")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--only", default="", help="words that the text of a scheme must have")
    args = parser.parse_args()
    take_cores(1)
    for group in search(args.forms, args.only, args.mib, args.worst):
        print(f"\n{group.title}: {group.below} of {group.count} below {FLOOR}; the slowest:")
        for one in group.slowest:
            print(f"{one.ratio:5.2f} {one.speed:6.1f} GB/s  {one.form:<19} {one.name}")


if __name__ == "__main__":
    main()
