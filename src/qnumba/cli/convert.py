"""The commands that write files: quantize and dequantize, one array in memory at a time."""

from __future__ import annotations

import math
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qnumba.cli.files import (
    NUMPY_NAMES,
    Item,
    Source,
    UsageError,
    ending_of,
    is_selected,
    open_source,
    require_selected,
)
from qnumba.cli.show import clean, count, label, progress, shape, size, spoken, table
from qnumba.errors import DataError, QuantizationError
from qnumba.formats import FLOATS as FLOAT_NAMES
from qnumba.inputs import float_dtype
from qnumba.io.checkpoint import KEY, Entry, entries_text, pack_qarray, tensor_layout
from qnumba.io.files import atomic_write
from qnumba.io.npy import write_npy
from qnumba.io.safetensors import dtype_name, write_safetensors
from qnumba.io.safetensors_header import tensor_bytes
from qnumba.layout import plan
from qnumba.params import Options, Params
from qnumba.quantize import quantize
from qnumba.serialize import container_parts
from qnumba.validate import as_scheme, require_options, validate

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from qnumba.qarray import QArray
    from qnumba.scheme import Scheme
    from qnumba.validate import Finding


NOT_SELECTED, NOT_QUANTIZED, QUANTIZED = "not selected", "not quantized", "already quantized"


class Job(NamedTuple):
    """What becomes of one array of a file: it is changed, or copied for the reason given.

    ``tensors`` are the tensors it becomes in a safetensors file: their dtypes and shapes.
    """

    item: Item
    tensors: dict[str, tuple[str, tuple[int, ...]]]
    reason: str = ""


def run_quantize(args: Namespace) -> dict[str, Any]:
    """Quantize the arrays of a file that can take the scheme; copy the others unchanged."""
    scheme, options = as_scheme(args.scheme), options_of(args)
    require_options(scheme, options)
    ending = _output_ending(args, (".qnb", ".safetensors"))

    def change(item: Item) -> QArray:
        q = quantize(item.load(), scheme, **options._asdict())
        q._made = (item.dtype, q.options)  # noqa: SLF001 - bfloat16 may have come as float32
        return q

    start = time.perf_counter()
    with open_source(args.file) as source:
        if ending == ".qnb" and source.tensors:
            raise UsageError("a .qnb file holds one array; write a .safetensors file instead")
        require_selected(source, args.include, args.exclude)
        jobs = [_quantize_job(item, source, scheme, args) for item in source.items]
        _require_work(source, jobs, f"quantized as {str(scheme)!r}")
        if ending == ".qnb":
            write_container(args.output, _named(source, source.items[0], change))
        else:
            new = {
                job.item.name: Entry(plan(scheme, job.item.shape), job.item.dtype, text(options))
                for job in jobs
                if not job.reason
            }
            _write_tensors(args.output, source, jobs, change, new)
    return {"scheme": str(scheme), **_summary(source, jobs, args.output, start)}


def run_dequantize(args: Namespace) -> dict[str, Any]:
    """Turn the quantized arrays of a file back into numbers; copy the others unchanged."""
    ending = _output_ending(args, (".npy", ".safetensors"))

    def change(item: Item) -> NDArray[Any]:
        decoded: NDArray[Any] = item.load().dequantize(_decoded_dtype(item, args.dtype))
        return decoded

    start = time.perf_counter()
    with open_source(args.file) as source:
        jobs = [_dequantize_job(item, source, args.dtype) for item in source.items]
        _require_work(source, jobs, "dequantized")
        if ending == ".npy" and len(jobs) > 1:
            raise UsageError("a .npy file holds one array; write a .safetensors file instead")
        if ending == ".npy":
            write_npy(args.output, _named(source, source.items[0], change))
        else:
            _write_tensors(args.output, source, jobs, change, {})
    return _summary(source, jobs, args.output, start)


def show_quantize(result: dict[str, Any]) -> str:
    """Write a summary, and what was copied and why."""
    changed = result["changed"]
    bits = 8 * _total(changed, "bytes_out") / max(_total(changed, "values"), 1)
    first = f"{clean(result['output'])}: {_count(result)} quantized as {result['scheme']}"
    return "\n".join([first, f"{_sizes(changed)}, {bits:.4g} bits per value", *_rest(result)])


def show_dequantize(result: dict[str, Any]) -> str:
    """Write a summary, and what was copied and why."""
    dtypes = " and ".join(sorted({NUMPY_NAMES[row["dtype_out"]] for row in result["changed"]}))
    first = f"{clean(result['output'])}: {_count(result)} dequantized to {dtypes}"
    return "\n".join([first, _sizes(result["changed"]), *_rest(result)])


def options_of(args: Namespace) -> Options:
    """Return the options of quantization that a command line gives."""
    return Options(*(getattr(args, name) for name in Options._fields))


def text(options: Options) -> str:
    """Return options as a quantized array keeps them."""
    return " ".join(f"{name}={choice}" for name, choice in options._asdict().items())


def problem(finding: Finding) -> str:
    """Return what is wrong, without what to do about it."""
    return spoken(finding.reason.split(f"; {finding.fix}")[0] if finding.fix else finding.reason)


def _output_ending(args: Namespace, endings: tuple[str, ...]) -> str:
    """Return the ending of the file to write, which is not the file to read unless forced."""
    ending = ending_of(args.output, endings)
    read, written = Path(args.file), Path(args.output)
    there = read.exists() and written.exists()
    if there and not args.force and written.samefile(read):
        raise UsageError(f"{args.output} is the input; give another name, or --force to replace it")
    return ending


def write_container(path: str | Path, q: QArray) -> None:
    """Write ``q.to_bytes()`` to a file, without holding it in memory."""
    params = Params(q.scales, q.global_scale, q.zero_points)
    made = {"dtype": q.source_dtype, "options": q.options}
    parts = container_parts(plan(q.scheme, q.shape), q.words, params, **made)
    with atomic_write(path) as file:
        file.writelines(parts)


def _quantize_job(item: Item, source: Source, scheme: Scheme, args: Namespace) -> Job:
    reason = _why_not(item, source, scheme, args)
    if reason:
        return Job(item, _as_they_are(item, source), reason)
    return Job(item, tensor_layout(item.name, plan(scheme, item.shape)))


def _why_not(item: Item, source: Source, scheme: Scheme, args: Namespace) -> str:
    """Say why an array is not quantized, or nothing."""
    if item.entry:
        return QUANTIZED
    if not is_selected(item.name, args.include, args.exclude):
        return NOT_SELECTED
    if source.tensors and item.dtype not in FLOAT_NAMES:
        return f"{item.dtype} is not a float dtype"
    findings = validate(scheme, shape=item.shape, dtype=item.dtype)
    if findings:  # of a file's only array there is room to say what to do
        return problem(findings[0]) if source.tensors else spoken(findings[0].reason)
    new = list(tensor_layout(item.name, plan(scheme, item.shape)))[1:]
    taken = [name for name in new if source.tensors and name in source.tensors]
    return f"the file has a tensor {taken[0]!r} already" if taken else ""


def _dequantize_job(item: Item, source: Source, dtype: str | None) -> Job:
    if item.entry is None:
        return Job(item, _as_they_are(item, source), NOT_QUANTIZED)
    wanted = dtype_name(float_dtype(_decoded_dtype(item, dtype)))
    return Job(item, {item.name: (wanted, item.shape)})


def _decoded_dtype(item: Item, dtype: str | None) -> str:
    """Return the dtype asked for, or that of the array before it was quantized if it is a float."""
    return dtype or (item.dtype if item.dtype in FLOAT_NAMES else "float32")


def _as_they_are(item: Item, source: Source) -> dict[str, tuple[str, tuple[int, ...]]]:
    infos = {part: source.tensors.info(part) for part in item.parts} if source.tensors else {}
    return {part: (info.dtype, info.shape) for part, info in infos.items()}


def _require_work(source: Source, jobs: list[Job], what: str) -> None:
    if all(job.reason for job in jobs):
        first = f"; {label(jobs[0].item.name)}: {jobs[0].reason}" if jobs else ""
        raise DataError(f"nothing in {source.path} can be {what}{first}")


def _write_tensors(
    output: str,
    source: Source,
    jobs: list[Job],
    change: Callable[[Item], Any],
    new: dict[str, Entry],
) -> None:
    """Write a safetensors file of the jobs' tensors, made one by one."""
    file = source.tensors
    kept = {job.item.name: job.item.entry for job in jobs if job.reason and job.item.entry}
    metadata = {key: told for key, told in (file.metadata if file else {}).items() if key != KEY}
    if kept or new:
        metadata[KEY] = entries_text(kept | new)

    def tensors(bar: Any) -> Iterator[tuple[str, NDArray[Any]]]:
        for job in jobs:
            if job.reason and file is not None:
                yield from ((part, file[part]) for part in job.item.parts)
            else:
                yield from _parts(job.item.name, _named(source, job.item, change))
            bar.update(job.item.nbytes)

    layout = {name: told for job in jobs for name, told in job.tensors.items()}
    with progress(source.nbytes, source.path.name) as bar:
        write_safetensors(output, layout, tensors(bar), metadata)


def _parts(name: str, made: Any) -> Iterable[tuple[str, NDArray[Any]]]:
    return pack_qarray(name, made).items() if hasattr(made, "scheme") else [(name, made)]


def _named(source: Source, item: Item, change: Callable[[Item], Any]) -> Any:
    """Change an array; an error says which array of which file it was."""
    try:
        return change(item)
    except QuantizationError as error:
        where = f"{source.path}: {label(item.name)}" if source.tensors else str(source.path)
        error.args = (f"{where}: {error}",)
        raise


def _summary(source: Source, jobs: list[Job], output: str, start: float) -> dict[str, Any]:
    return {
        "input": str(source.path),
        "output": output,
        "seconds": time.perf_counter() - start,
        "changed": [_row(job) for job in jobs if not job.reason],
        "copied": [_row(job) | {"reason": job.reason} for job in jobs if job.reason],
    }


def _row(job: Job) -> dict[str, Any]:
    item = job.item
    return {
        "name": item.name,
        "shape": item.shape,
        "values": math.prod(item.shape),
        "dtype_in": item.dtype,
        "dtype_out": job.tensors[item.name][0],
        "bytes_in": item.nbytes,
        "bytes_out": sum(tensor_bytes(*told) for told in job.tensors.values()),
    }


def _total(rows: list[dict[str, Any]], key: str) -> int:
    return sum(row[key] for row in rows)


def _count(result: dict[str, Any]) -> str:
    done, copied = len(result["changed"]), len(result["copied"])
    return f"{done} of {done + copied} arrays" if copied else count(done, "array")


def _sizes(rows: list[dict[str, Any]]) -> str:
    return f"{size(_total(rows, 'bytes_in'))} became {size(_total(rows, 'bytes_out'))}"


def _rest(result: dict[str, Any]) -> list[str]:
    """Sum up the whole file; list what was copied and why, and count what was to be expected."""
    copied, expected = result["copied"], (NOT_SELECTED, NOT_QUANTIZED, QUANTIZED)
    if not copied:
        return []
    counts = Counter(row["reason"] for row in copied if row["reason"] in expected)
    rows = [
        ("  " + label(row["name"]), row["dtype_in"], shape(row["shape"]), row["reason"])
        for row in copied
        if row["reason"] not in expected
    ]
    return [
        f"{_sizes(result['changed'] + copied)} in all",
        *(f"copied unchanged: {number} {reason}" for reason, number in counts.items()),
        *(["copied unchanged:", table(rows, "<<<<")] if rows else []),
    ]
