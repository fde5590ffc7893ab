"""The commands that only look: presets, check and info."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from qnumba.cli.convert import options_of, problem
from qnumba.cli.files import Item, open_source
from qnumba.cli.show import count, label, shape, size, spoken, table
from qnumba.io.checkpoint import KEY
from qnumba.layout import plan
from qnumba.scheme import PRESETS
from qnumba.serialize import record_size
from qnumba.validate import as_scheme, validate

if TYPE_CHECKING:
    from argparse import Namespace

    from qnumba.scheme import Scheme
    from qnumba.validate import Finding

LARGE = (4096, 4096)  # the array whose bits per value are given where there is no array
PURPOSES = {
    "int8": "arrays without outliers",
    "uint8": "one-sided data: counts, activations, images",
    "int4": "weights, in small blocks",
    "ternary": "-1, 0, 1: weights trained for it (with --method absmean)",
    "fp8": "a wide range of magnitudes",
    "fp8_block": "weights and activations of large models",
    "mxfp8": "the OCP microscaling format, 8 bits",
    "mxfp4": "the OCP microscaling format, 4 bits",
    "nvfp4": "4 bits with fine block scales",
    "nf4": "normally distributed weights (QLoRA)",
}


def run_presets(_: Namespace) -> dict[str, Any]:
    """List the named schemes."""
    return {
        "presets": [
            {
                "name": name,
                "scheme": str(scheme),
                "bits_per_value": bits_per_value(scheme, LARGE),
                "purpose": PURPOSES.get(name, ""),
            }
            for name, scheme in PRESETS.items()
        ]
    }


def show_presets(result: dict[str, Any]) -> str:
    """Write a table."""
    rows = [("name", "bits/value", "scheme", "for")]
    for row in result["presets"]:
        bits = f"{row['bits_per_value']:.2f}"
        rows.append((row["name"], bits, row["scheme"], row["purpose"]))
    return table(rows, "<><<")


def run_check(args: Namespace) -> dict[str, Any]:
    """Say whether a scheme is one, and whether it fits a shape, a dtype and options."""
    options = options_of(args)._asdict()
    findings = validate(args.scheme, shape=args.shape, dtype=args.dtype, **options)
    result: dict[str, Any] = {
        "given": args.scheme,
        "ok": not findings,
        "findings": [_finding(finding) for finding in findings],
    }
    return result if findings else result | _describe(as_scheme(args.scheme), args.shape)


def show_check(result: dict[str, Any]) -> str:
    """Write what the scheme means, or what is wrong with it."""
    if result["ok"]:
        example = "" if result["is_shape_given"] else "an example of "
        return (
            f"ok: {result['scheme']}\n"
            f"{result['bits_per_value']:.4g} bits per value for {example}shape "
            f"{shape(result['shape'])}: {size(result['bytes'])}, {count(result['scales'], 'scale')}"
        )
    lines = []
    for finding in result["findings"]:
        lines += [f"{finding['field']}: {finding['reason']}", f"  fix: {finding['fix']}"]
        lines += [f"  nearest: {finding['nearest']}"] if finding["nearest"] else []
    return "\n".join(lines)


def run_info(args: Namespace) -> dict[str, Any]:
    """Say what a file holds, from its header."""
    with open_source(args.file) as source:
        metadata = source.tensors.metadata if source.tensors else {}
        return {
            "file": str(source.path),
            "bytes": source.path.stat().st_size,
            "metadata": {key: told for key, told in metadata.items() if key != KEY},
            "arrays": [_array(item) for item in source.items],
        }


def show_info(result: dict[str, Any]) -> str:
    """Write a table of the arrays."""
    rows = [("name", "dtype", "shape", "size", "bits/value", "quantized as")]
    for row in result["arrays"]:
        bits = "" if row["bits_per_value"] is None else f"{row['bits_per_value']:.4g}"
        sizes = (shape(row["shape"]), size(row["bytes"]), bits)
        rows.append((label(row["name"]), row["dtype"], *sizes, row["scheme"] or ""))
    columns = 6 if any(row["scheme"] for row in result["arrays"]) else 4
    arrays, values = len(result["arrays"]), sum(math.prod(row["shape"]) for row in result["arrays"])
    total = f"{count(arrays, 'array')}, {count(values, 'value')}, {size(result['bytes'])}"
    metadata = [f"{label(key)}: {label(told)}" for key, told in result["metadata"].items()]
    return "\n".join(
        [table([row[:columns] for row in rows], "<<<>><"[:columns]), "", total, *metadata]
    )


def _finding(finding: Finding) -> dict[str, Any]:
    # to a name that is none any other may be nearest; the fix lists them all
    nearest = None if finding.field == "scheme" else finding.nearest
    return {
        "field": finding.field,
        "reason": problem(finding),
        "fix": spoken(finding.fix),
        "nearest": None if nearest is None else str(nearest),
    }


def _describe(scheme: Scheme, given: tuple[int, ...] | None) -> dict[str, Any]:
    extents = LARGE if given is None else given
    layout = plan(scheme, extents)
    return {
        "scheme": str(scheme),
        "shape": extents,
        "is_shape_given": given is not None,
        "bits_per_value": bits_per_value(scheme, extents),
        "bytes": record_size(layout),
        "scales": math.prod(layout.grid),
    }


def bits_per_value(scheme: Scheme, extents: tuple[int, ...]) -> float:
    """Return the bits an element takes, scales and padding included; NaN for an empty array."""
    values = math.prod(extents)
    return 8 * record_size(plan(scheme, extents)) / values if values else math.nan


def _array(item: Item) -> dict[str, Any]:
    scheme = item.entry.plan.scheme if item.entry else None
    return {
        "name": item.name,
        "dtype": item.dtype,
        "shape": item.shape,
        "bytes": item.nbytes,
        "scheme": None if scheme is None else str(scheme),
        "bits_per_value": None if scheme is None else bits_per_value(scheme, item.shape),
        "options": item.entry.options if item.entry else None,
    }
