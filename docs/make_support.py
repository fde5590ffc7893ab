"""Write the support table of the documentation by running it: python docs/make_support.py.

Every scheme there can be of (mode, store, value type, level, scale dtype), packed along the last
axis and along another, quantizes and decodes a small array on every backend. A backend supports a
scheme if it gives the bits of the reference; the reference, if encoding again what it decodes gives
the same codes, and its record reads back.

The page is made anywhere. CUDA's answers are kept in support_cuda.toml, from which the page has its
column: ``python docs/make_support.py emulated`` runs the compiled kernels on the emulator of the
tests, ``python docs/make_support.py cuda`` on a GPU.
"""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from make_tables import table

import qnumba as qn
from qnumba import cpu, reference
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
    from collections.abc import Callable, Iterable, Iterator

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "support.md"
RECORD = DOCS / "support_cuda.toml"
BURN = DOCS / "burn_support.toml"
PART = re.compile(r"(<!-- support: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
LEVELS = ("tensor", "block", "two-level")
SHAPE = (5, 21)  # no multiple of a block or a word
BLOCK = (2, 8)
X = np.random.default_rng(7).standard_normal(SHAPE).astype(np.float32)
EMULATED = "an emulator of the compiled kernels (sm_90a), not on a GPU"
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


def works(answers: Callable[[Scheme], bool], scheme: Scheme) -> bool:
    """Return whether a backend does a scheme right, packed along either axis."""
    axes = (0,) if scheme.store == "native" else (0, 1)
    return all(_works_so(answers, scheme.replace(pack_axis=axis)) for axis in axes)


def _works_so(answers: Callable[[Scheme], bool], scheme: Scheme) -> bool:
    try:
        return answers(scheme)
    except NotImplementedError:
        return False


def is_consistent(scheme: Scheme) -> bool:
    """Return whether the reference finds its own codes again, in numbers and in a record."""
    layout = plan(scheme, SHAPE)
    words, params, decoded = _run(reference, scheme, X)
    again, _, _ = _run(reference, scheme, decoded, params)
    read, _ = from_record(to_record(layout, words, params), layout)
    return np.array_equal(words, again) and np.array_equal(words, read)


def agrees(run: Callable[[Scheme], tuple[Any, Any]], scheme: Scheme) -> bool:
    """Return whether the words and the decoded numbers of a run are those of the reference."""
    words, numbers = run(scheme)
    wanted, _, decoded = _run(reference, scheme, X)
    return np.array_equal(words, wanted) and np.array_equal(numbers, decoded)


def on_host(backend: Any) -> Callable[[Scheme], tuple[Any, Any]]:
    """Return the function that runs a scheme on a backend for NumPy arrays."""
    return lambda scheme: _run(backend, scheme, X)[::2]


def on_device(
    to_device: Callable[[Any], Any], to_host: Callable[[Any], Any]
) -> Callable[[Scheme], tuple[Any, Any]]:
    """Return the function that runs a scheme on a CUDA array, through the front door."""

    def run(scheme: Scheme) -> tuple[Any, Any]:
        q = qn.quantize(to_device(X), scheme)
        return q.to_host().words, to_host(q.dequantize())

    return run


def on_emulator(device: Any) -> Callable[[Scheme], tuple[Any, Any]]:
    """Return the function that runs a scheme on an emulated device, which forgets the last one."""

    def put(x: Any) -> Any:
        device.forget()
        return device.put(x)

    return on_device(put, lambda array: array.get())


def _run(backend: Any, scheme: Scheme, x: Any, params: Any = None) -> tuple[Any, Any, Any]:
    layout = plan(scheme, SHAPE)
    words = np.zeros(layout.words_shape, layout.words_dtype)
    params, _ = backend.quantize(x, layout, Options(), params, words)
    decoded = np.empty(SHAPE, np.float32)
    backend.dequantize(words, layout, params, decoded)
    return words, params, decoded


def backends() -> dict[str, Callable[[Scheme], bool]]:
    """Return what answers for each backend, by its name; CUDA answers from its record."""
    found = {"reference": is_consistent, "CPU": partial(agrees, on_host(cpu))}
    if RECORD.exists():
        fails = set(tomllib.loads(RECORD.read_text(encoding="utf-8"))["fails"])
        found["CUDA"] = lambda scheme: str(scheme) not in fails
    return found


def schemes() -> list[Scheme]:
    """Return every scheme that ``works`` asks for."""
    axes = ((case, (0,) if case.store == "native" else (0, 1)) for case in cases())
    return [case.scheme.replace(pack_axis=axis) for case, both in axes for axis in both]


def failing(run: Callable[[Scheme], tuple[Any, Any]], some: Iterable[Scheme]) -> list[str]:
    """Return which of some schemes a run does not do right."""
    answers = partial(agrees, run)
    return [str(scheme) for scheme in some if not _works_so(answers, scheme)]


def record(run: Callable[[Scheme], tuple[Any, Any]], how: str) -> None:
    """Run every scheme on a CUDA device, and keep which fail, and how it was run."""
    fails = failing(run, schemes())
    lines = "".join(f"    {json.dumps(scheme)},\n" for scheme in fails)
    text = f"how = {json.dumps(how)}\nfails = [\n{lines}]\n"
    RECORD.write_text(text, encoding="utf-8")


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
    answers, burn = backends(), burn_rows()
    lines: dict[tuple[str, ...], list[str]] = {}
    places: dict[tuple[str, ...], list[Case]] = {}
    for case in cases():
        places.setdefault(case[:4], []).append(case)
    for (mode, store, value, level), group in places.items():
        scales = [case.scale for case in group]
        here = [
            _listed([case.scale for case in group if works(one, case.scheme)], scales)
            for one in answers.values()
        ]
        key = (mode, f"`{store}`", level, " ".join(scales), *here, _marks(group, burn))
        lines.setdefault(key, []).append(value)
    head = ("mode", "store", "value types", "level", "scales", *answers, "burn")
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
    short = len({case[:4] for case in every})
    text = f"{len(every)} combinations, {short} without scale dtypes."
    if RECORD.exists():
        how = tomllib.loads(RECORD.read_text(encoding="utf-8"))["how"]
        text += f" CUDA was run on {how}."
    return f"{text}\n"


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
    if sys.argv[1:] == ["cuda"]:
        from numba import cuda  # noqa: PLC0415 - from the cuda extras, only where there is a GPU

        run = on_device(cuda.to_device, lambda array: array.copy_to_host())
        record(run, f"a GPU: {cuda.get_current_device().name}")
    if sys.argv[1:] == ["emulated"]:
        sys.path.insert(0, str(DOCS.parent / "tests"))
        from emulator.device import emulated  # noqa: PLC0415 - from the cuda extras as well

        with emulated() as device:
            record(on_emulator(device), EMULATED)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE.name}: {', '.join(backends())}")


if __name__ == "__main__":
    main()
