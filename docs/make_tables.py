"""Write the tables of the documentation from the code: python docs/make_tables.py.

A table stands between the lines ``<!-- table: NAME -->`` and ``<!-- end -->`` of a page.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from burn_conditions import CONDITIONS, SECTIONS

from qnumba import fit_rules, rules
from qnumba.formats import MODES, SCALES, STORES, VALUES, decode_table, default_store
from qnumba.layout import plan
from qnumba.scheme import PRESETS, Scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DOCS = Path(__file__).resolve().parent
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
RULE_GROUPS = {
    "rules_scheme": rules.SCHEME_RULES,
    "rules_shape": fit_rules.SHAPE_RULES,
    "rules_dtype": fit_rules.DTYPE_RULES,
    "rules_params": fit_rules.PARAMS_RULES,
    "rules_options": fit_rules.OPTION_RULES,
}


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def number(value: float) -> str:
    """Return a number as an integer, a power of two, or a multiple of one: all exact."""
    if abs(value) < 1e6 and value == int(value):  # noqa: PLR2004 - longer ones read badly
        return f"{int(value)}"
    mantissa, exponent = math.frexp(value)
    mantissa, exponent = mantissa * 2, exponent - 1
    return f"2^{exponent}" if mantissa == 1 else f"{Fraction(mantissa)}*2^{exponent}"


def values() -> str:
    """Every value type: bits, numbers, the modes and the store it gets."""
    rows = []
    for name, row in VALUES.items():
        numbers = decode_table(name)
        inside = sorted({float(n) for n in numbers if row.lo <= n <= row.hi})
        shown = f"{number(row.lo)} .. {number(row.hi)}"
        modes = [mode for mode in MODES if accepted(value=name, mode=mode)]
        rows.append(
            (f"`{name}`", row.bits, shown, len(inside), ", ".join(modes), default_store(name))
        )
    return table(("value", "bits", "codes stand for", "numbers", "modes", "default store"), rows)


def accepted(value: str, mode: str) -> bool:
    """Whether a value type can be used in a mode."""
    lookup = tuple(float(i) for i in range(2 ** VALUES[value].bits)) if mode == "lookup" else None
    try:
        Scheme(value, mode=mode, table=lookup)  # type: ignore[arg-type]
    except ValueError:
        return False
    return True


def scales() -> str:
    """Every scale dtype: bytes, range, whether it can stand under a global scale."""
    rows = [
        (
            f"`{name}`",
            row.bytes,
            number(row.tiny),
            f"{row.max:.9g}",
            row.mantissa_bits,
            "yes" if name in rules.TWO_LEVEL_SCALES else "no",
        )
        for name, row in SCALES.items()
    ]
    head = (
        "scale",
        "bytes",
        "smallest above 0",
        "largest",
        "mantissa bits",
        "under a global scale",
    )
    return table(head, rows)


def stores() -> str:
    """Every store: the word, how many codes it holds, which value types it takes."""
    rows = []
    for name, row in STORES.items():
        per_word = sorted({row.word_bits // VALUES[v].bits for v in row.values}) or [1]
        codes = "1" if not row.word_bits else " or ".join(map(str, per_word))
        takes = "every value type" if len(row.values) == len(VALUES) else ", ".join(
            v for v in VALUES if v in row.values
        )  # fmt: skip
        word = "8-bit" if row.word_bits in {0, 8} else "32-bit, little-endian"
        rows.append((f"`{name}`", word, codes, takes))
    return table(("store", "word", "codes in a word", "value types"), rows)


def presets() -> str:
    """Every preset: its scheme, and what a large matrix costs."""
    rows = []
    for name, scheme in PRESETS.items():
        shape = (4096, 4096)
        layout = plan(scheme, shape)
        scales_bits = 8 * (layout.scale.bytes + (scheme.mode == "affine")) * math.prod(layout.grid)
        bits = layout.value.bits + (scales_bits + 32 * scheme.two_level) / math.prod(shape)
        rows.append((f"`{name}`", f"`{scheme}`", f"{bits:.3f}"))
    return table(("preset", "scheme", "bits per value of a 4096 x 4096 array"), rows)


def rule_table(group: tuple[rules.Rule, ...]) -> Callable[[], str]:
    """Return the function that writes one group of rules: field, message, fix."""

    def write() -> str:
        rows = [(f"`{rule.field}`", words(rule.reason), words(rule.fix)) for rule in group]
        return table(("field", "message", "what to do"), rows)

    return write


def words(message: str) -> str:
    """Return a message with its places named: '{s.scheme.block}' is shown as *block*."""
    named = re.sub(r"\{s\.(?:\w+\.)*(\w+)(?:!r)?\}", r"*\1*", message)
    return named.replace("|", r"\|").replace("**", r"\*\*")


def burn(section: str) -> Callable[[], str]:
    """Return the function that writes one part of the table of burn's conditions."""

    def write() -> str:
        rows = [
            (f"`{entry.message}`", entry.when, f"**{entry.outcome}**: {entry.here}")
            for entry in CONDITIONS
            if entry.section == section
        ]
        return table(("burn says", "when", "here"), rows)

    return write


TABLES = {"values": values, "scales": scales, "stores": stores, "presets": presets}
TABLES |= {name: rule_table(group) for name, group in RULE_GROUPS.items()}
TABLES |= {f"burn_{section}": burn(section) for section in SECTIONS}


def filled(text: str) -> str:
    """Return a page with every table written anew."""
    return TABLE.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def main() -> None:
    """Fill the tables of every page."""
    for page in (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text), encoding="utf-8")
        print(f"{page.name}: {len(TABLE.findall(text))} tables")


if __name__ == "__main__":
    main()
