"""Write the support table of the documentation by running it: python docs/make_support.py.

Every scheme there can be of (mode, store, value type, level, scale dtype), packed along the last
axis and along another, quantizes and decodes a small array on every backend. A backend supports a
scheme if it gives the bits of the reference; the reference, if encoding again what it decodes gives
the same codes, and its record reads back.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from make_tables import table

from qnumba import reference
from qnumba.errors import SchemeError
from qnumba.formats import MODES, SCALES, STORES, VALUES
from qnumba.layout import plan
from qnumba.params import Options
from qnumba.scheme import Scheme
from qnumba.serialize import from_record, to_record

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "support.md"
BURN = DOCS / "burn_support.toml"
PART = re.compile(r"(<!-- support: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
NAMES = {"reference": "reference", "cpu": "CPU", "cuda": "CUDA"}
LEVELS = ("tensor", "block", "two-level")
SHAPE = (5, 21)  # no multiple of a block or a word
BLOCK = (2, 8)
X = np.random.default_rng(7).standard_normal(SHAPE).astype(np.float32)
MARKS = "abcdefghijklmnopqrstuvwxyz"


class Case(NamedTuple):
    """One place of the table, and the scheme that stands for it."""

    mode: str
    store: str
    value: str
    level: str
    scale: str
    scheme: Scheme


class Burn(NamedTuple):
    """One row of burn's own table; an empty tuple of names is all of them."""

    mark: str
    mode: tuple[str, ...]
    store: tuple[str, ...]
    values: tuple[str, ...]
    levels: tuple[str, ...]
    scales: tuple[str, ...]
    ndarray: str
    flex: str
    cubecl: str
    note: str

    def fits(self, case: Case) -> bool:
        """Return whether the row speaks of a case."""
        pairs = zip(self[1:6], case[:5], strict=True)
        return all(not names or name in names for names, name in pairs)


def cases() -> Iterator[Case]:
    """Yield every combination that is a scheme."""
    names = product(MODES, STORES, VALUES, LEVELS, SCALES)
    for mode, store, value, level, scale in names:
        arguments: dict[str, Any] = {"mode": mode, "store": store}
        if mode == "lookup":
            arguments["table"] = np.linspace(-1, 1, 2 ** VALUES[value].bits)
        if level == "tensor":
            arguments["tensor_scale"] = scale
        else:
            arguments |= {"block": BLOCK, "block_scale": scale}
            arguments |= {"tensor_scale": "F32"} if level == "two-level" else {}
        try:
            scheme = Scheme(value, **arguments)  # type: ignore[arg-type]
        except SchemeError:
            continue
        yield Case(mode, store, value, level, scale, scheme)


def works(backend: ModuleType, scheme: Scheme) -> bool:
    """Return whether a backend does a scheme right, packed along either axis."""
    packed = scheme.store != "native"
    return all(_agrees(backend, scheme.replace(pack_axis=axis)) for axis in (0, 1)[: 1 + packed])


def _agrees(backend: ModuleType, scheme: Scheme) -> bool:
    try:
        words, params, decoded = _run(backend, scheme, X)
    except NotImplementedError:
        return False
    if backend is reference:
        again, _, _ = _run(backend, scheme, decoded, params)
        read, _ = from_record(to_record(plan(scheme, SHAPE), words, params), plan(scheme, SHAPE))
        return np.array_equal(words, again) and np.array_equal(words, read)
    wanted, _, numbers = _run(reference, scheme, X)
    return np.array_equal(words, wanted) and np.array_equal(decoded, numbers)


def _run(backend: Any, scheme: Scheme, x: Any, params: Any = None) -> tuple[Any, Any, Any]:
    layout = plan(scheme, SHAPE)
    words = np.zeros(layout.words_shape, layout.words_dtype)
    params, _ = backend.quantize(x, layout, Options(), params, words)
    decoded = np.empty(SHAPE, np.float32)
    backend.dequantize(words, layout, params, decoded)
    return words, params, decoded


def backends() -> dict[str, ModuleType]:
    """Return the backends that are here and run on this machine's arrays, by their names."""
    found = [name for name in ("reference", "cpu") if find_spec(f"qnumba.{name}")]
    return {NAMES[name]: import_module(f"qnumba.{name}") for name in found}


def burn_rows() -> list[Burn]:
    """Return burn's table, each row with a letter."""
    rows = tomllib.loads(BURN.read_text(encoding="utf-8"))["row"]
    found = []
    for mark, row in zip(MARKS, rows, strict=False):
        names = (tuple(row.get(name, ())) for name in Burn._fields[1:6])
        texts = (row.get(name, "") for name in Burn._fields[6:])
        found.append(Burn(mark, *names, *texts))
    return found


def support() -> str:
    """Return the table of what works where; value types with the same answers share a line."""
    modules, burn = backends(), burn_rows()
    lines: dict[tuple[str, ...], list[str]] = {}
    places: dict[tuple[str, ...], list[Case]] = {}
    for case in cases():
        places.setdefault(case[:4], []).append(case)
    for (mode, store, value, level), group in places.items():
        scales = [case.scale for case in group]
        here = [
            _listed([case.scale for case in group if works(module, case.scheme)], scales)
            for module in modules.values()
        ]
        key = (mode, f"`{store}`", level, " ".join(scales), *here, _marks(group, burn))
        lines.setdefault(key, []).append(value)
    head = ("mode", "store", "value types", "level", "scales", *modules, "burn")
    rows = [(*key[:2], " ".join(values), *key[2:]) for key, values in lines.items()]
    return table(head, rows)


def burn_table() -> str:
    """Return burn's own table."""
    rows = [
        (
            f"**{row.mark}**",
            *(" ".join(names) or "any" for names in row[1:6]),
            *(row.ndarray, row.flex, row.cubecl, row.note),
        )
        for row in burn_rows()
    ]
    head = ("", "mode", "store", "value types", "level", "scales")
    return table((*head, "burn-ndarray", "burn-flex", "burn-cubecl", "note"), rows)


def counts() -> str:
    """Return how much was run."""
    every = list(cases())
    return f"{len(every)} combinations, {len({case[:4] for case in every})} without scale dtypes.\n"


def _listed(names: list[str], every: Iterable[str]) -> str:
    """Return which of some scale dtypes work, in a word where that says it."""
    return "all" if names == list(every) else " ".join(names) or "-"


def _marks(group: list[Case], burn: list[Burn]) -> str:
    """Return the letters of burn's rows for the scale dtypes of a group."""
    by_mark: dict[str, list[str]] = {}
    for case in group:
        mark = next(row.mark for row in burn if row.fits(case))
        by_mark.setdefault(mark, []).append(case.scale)
    if len(by_mark) == 1:
        return next(iter(by_mark))
    return "; ".join(f"{mark} ({' '.join(scales)})" for mark, scales in by_mark.items())


PARTS = {"here": support, "burn": burn_table, "counts": counts}


def filled(text: str) -> str:
    """Return a page with every part written anew."""
    return PART.sub(lambda found: found[1] + PARTS[found[2]]() + found[3], text)


def main() -> None:
    """Fill the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE.name}: {', '.join(backends())}")


if __name__ == "__main__":
    main()
