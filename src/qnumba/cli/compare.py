"""The commands that measure: compare schemes on your data, and the demo on ours."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.cli.convert import options_of, write_container
from qnumba.cli.files import Item, is_selected, open_source, require_selected
from qnumba.cli.show import (
    clean,
    count,
    label,
    progress,
    seconds,
    shape,
    size,
    spoken,
    table,
)
from qnumba.data import attention_weight
from qnumba.errors import DataError, QuantizationError
from qnumba.formats import FLOATS
from qnumba.io.files import map_bytes
from qnumba.params import Method, Options
from qnumba.qarray import QArray
from qnumba.quantize import quantize
from qnumba.report import report
from qnumba.scheme import PRESETS
from qnumba.validate import as_scheme, require, require_options

if TYPE_CHECKING:
    from argparse import Namespace

    from numpy.typing import NDArray

    from qnumba.scheme import Scheme

# The fastest run counts: the first may compile, another program may disturb some.
FEWEST_RUNS, RUNS, LONG_ENOUGH = 3, 50, 0.3  # seconds
SLAB = 1 << 18  # values
DEMO_NAME = "encoder.layer.0.attention.self.query.weight of all-MiniLM-L6-v2"
DEMO_SCHEME = "nvfp4"
DEMO_METHODS: dict[str, Method] = {"ternary": "absmean"}  # the method of BitNet, whose format it is
MEASURES = ("bits_per_value", "snr_db", "max_error", "clipped", "dead_blocks", "seconds")


def run_compare(args: Namespace) -> dict[str, Any]:
    """Quantize the arrays of a file with several schemes, and measure what is lost."""
    options = options_of(args)
    schemes = {text: as_scheme(text) for text in args.schemes or PRESETS}
    for scheme in schemes.values():
        require_options(scheme, options)
    with open_source(args.file) as source:
        require_selected(source, args.include, args.exclude)
        items = [item for item in source.items if _is_comparable(item, args)]
        if not items:
            raise DataError(
                f"{args.file}: none of its arrays is selected and of a float dtype; convert to one "
                f"of {', '.join(FLOATS)}"
            )
        total = len(schemes) * sum(item.nbytes for item in items)
        with progress(total, f"comparing {source.path.name}") as bar:
            rows = [_measure(scheme, items, options, bar, text) for text, scheme in schemes.items()]
    if all(row["seconds"] is None for row in rows):
        where = [args.file, label(items[0].name)] if source.tensors else [args.file]
        raise DataError(": ".join([*where, rows[0]["skipped"][0]["reason"]]))
    return {
        "file": args.file,
        "arrays": [item.name for item in items],
        "values": sum(math.prod(item.shape) for item in items),
        "rows": rows,
    }


def show_compare(result: dict[str, Any]) -> str:
    """Write a table in the order of the schemes."""
    arrays = len(result["arrays"])
    what = label(result["arrays"][0]) if arrays == 1 else count(arrays, "array")
    head = f"{clean(result['file'])}: {what}, {count(result['values'], 'value')}"
    return "\n".join([head, "", _rows_table(result["rows"]), *_skipped(result["rows"])])


def run_demo(args: Namespace) -> dict[str, Any]:
    """Quantize the embedded array with every preset; save one result, load it, compare the bits."""
    weight = attention_weight()
    item = Item(DEMO_NAME, "float32", weight.shape, weight.nbytes, lambda: weight)
    with progress(len(PRESETS) * item.nbytes, "quantizing") as bar:
        rows = [
            _measure(scheme, [item], Options(method=method), bar, name)
            for name, scheme in PRESETS.items()
            for method in (DEMO_METHODS.get(name, "minmax"),)
        ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(args.output or Path(folder) / "demo.qnb")
        q = quantize(weight, DEMO_SCHEME)
        write_container(path, q)
        identical = bool(QArray.from_bytes(map_bytes(path)) == q)
        saved = {"path": args.output, "bytes": path.stat().st_size, "scheme": DEMO_SCHEME}
    array = {"name": DEMO_NAME, "shape": weight.shape, "bytes": weight.nbytes}
    return {"array": array, "rows": rows, "saved": saved, "identical": identical, "ok": identical}


def show_demo(result: dict[str, Any]) -> str:
    """Write the table, and what became of the file."""
    array, saved = result["array"], result["saved"]
    where = clean(saved["path"] or "") or "a temporary file"
    verdict = "the same bits" if result["identical"] else "OTHER BITS: THIS IS A FAULT"
    return "\n".join(
        [
            f"{array['name']}",
            f"{shape(array['shape'])} float32, {size(array['bytes'])}",
            "",
            _rows_table(result["rows"]),
            "",
            f"{saved['scheme']} saved to {where} ({size(saved['bytes'])}) and loaded: {verdict}",
        ]
    )


def _is_comparable(item: Item, args: Namespace) -> bool:
    plain = item.entry is None and item.dtype in FLOATS
    return plain and is_selected(item.name, args.include, args.exclude)


def _measure(
    scheme: Scheme, items: list[Item], options: Options, bar: Any, text: str
) -> dict[str, Any]:
    """Quantize arrays with one scheme; add up what it costs and what it loses."""
    skipped, parts = [], []
    for item in items:
        try:
            require(scheme, item.shape, item.dtype)
            parts.append(_measure_one(item, scheme, options))
        except QuantizationError as error:
            skipped.append({"name": item.name, "reason": spoken(str(error))})
        bar.update(item.nbytes)
    return {"scheme": text, "text": str(scheme), "skipped": skipped} | _sum(parts)


def _measure_one(item: Item, scheme: Scheme, options: Options) -> dict[str, float]:
    x, durations = item.load(), [math.inf]
    for _ in range(RUNS):
        start = time.perf_counter()
        q = quantize(x, scheme, **options._asdict())
        durations.append(time.perf_counter() - start)
        if sum(durations[1:]) > LONG_ENOUGH and len(durations) > FEWEST_RUNS:
            break
    found = report(x, q)
    signal = _energy(x)
    return {
        "values": q.size,
        "bytes": q.nbytes,
        "snr": found.snr,
        "signal": signal,
        "noise": signal * found.relative_rms**2,
        "max_error": found.max_error,
        "clipped": found.clipped,
        "dead_blocks": found.dead_blocks,
        "seconds": min(durations),
    }


def _energy(x: NDArray[Any]) -> float:
    """Return the sum of squares of the finite values, in float64, a slab at a time."""
    flat, total = x.reshape(-1), 0.0
    for start in range(0, x.size, SLAB):
        slab = flat[start : start + SLAB].astype(np.float64)
        slab[~np.isfinite(slab)] = 0
        with np.errstate(over="ignore"):
            total += float(slab @ slab)
    return total


def _sum(parts: list[dict[str, float]]) -> dict[str, Any]:
    """Add up what was measured on several arrays; the error is the largest."""
    if not parts:
        return dict.fromkeys(MEASURES)
    total = {key: sum(part[key] for part in parts) for key in parts[0]}
    signal, noise = total["signal"], total["noise"]
    snr = 10 * math.log10(signal / noise) if signal and noise else math.inf
    return {
        "bits_per_value": 8 * total["bytes"] / total["values"] if total["values"] else math.nan,
        "snr_db": parts[0]["snr"] if len(parts) == 1 else snr,
        "max_error": max(part["max_error"] for part in parts),
        "clipped": total["clipped"],
        "dead_blocks": total["dead_blocks"],
        "seconds": total["seconds"],
    }


def _rows_table(rows: list[dict[str, Any]]) -> str:
    lines = [("scheme", "bits/value", "SNR dB", "max error", "clipped", "dead blocks", "time")]
    for row in rows:
        if row["seconds"] is None:
            lines.append((row["scheme"], *["-"] * len(MEASURES)))
            continue
        lines.append(
            (
                row["scheme"],
                f"{row['bits_per_value']:.2f}",
                f"{row['snr_db']:.1f}",
                f"{row['max_error']:.3g}",
                f"{row['clipped']:,}",
                f"{row['dead_blocks']:,}",
                seconds(row["seconds"]),
            )
        )
    return table(lines, "<>>>>>>")


def _skipped(rows: list[dict[str, Any]]) -> list[str]:
    """Say how many arrays did not take a scheme, and why the first did not."""
    return [
        f"{row['scheme']}: {len(row['skipped'])} left out; {label(row['skipped'][0]['name'])}: "
        f"{row['skipped'][0]['reason']}"
        for row in rows
        if row["skipped"]
    ]
