"""Bits and speed of the CUDA kernels on the GPU that is there, in one command of a few minutes.

    python -m benchmarks.gpu                # on a GPU; prints, and writes build/gpu.json
    python -m benchmarks.gpu --emulate      # the same ways on the emulator: tiny, and no times

Needs ``pip install -e ".[test,cuda12]"`` or ``cuda13``. Sections: ``bits`` compares every preset
with the CPU (on the emulator, with the reference), ``bandwidth`` times every kernel beside a copy
on the device, ``peers`` times what other libraries offer, ``launches`` is the time of a call on the
host, ``sanitizer`` runs the bits again under compute-sanitizer where that is on PATH. A section
that fails is reported and the others run. The exit status is 1 if bits differ or were not compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.gpu_machines import Emulator, Gpu  # noqa: E402
from benchmarks.gpu_peers import PEERS  # noqa: E402

import qnumba as qn  # noqa: E402
from cuda_support import BFLOAT16, DTYPES, hard, put, tagged  # noqa: E402
from qnumba import cpu, reference  # noqa: E402
from qnumba.gpu import driver, operations, routes  # noqa: E402
from qnumba.layout import plan as make_plan  # noqa: E402
from qnumba.params import Options  # noqa: E402
from support import assert_same_bits  # noqa: E402

SAVED = ROOT / "build" / "gpu.json"
CLIP = Options(nonfinite="clip")
NARROW = ("float32", "float16", "bfloat16")
SIZES = {False: ((48, 256), (1003, 1024), (4096, 8192)), True: ((4, 256), (3, 512), (130, 256))}
TIMED = {False: (32768, 4096), True: (128, 256)}
SMALL = ("int8", "uint8", "int4", "fp8_block", "mxfp8", "nvfp4", "nf4")


class Session(NamedTuple):
    """What a section is given."""

    machine: object
    presets: tuple[str, ...]
    small: bool
    deadline: float

    def late(self):
        """Return whether no more work should be begun."""
        return time.perf_counter() > self.deadline


def about(session):
    """Say what is run on."""
    yield session.machine.about()


# --- bits


@lru_cache(maxsize=8)
def data(shape, dtype):
    """Return numbers with ties, zeros, NaN and infinities; the large ones take seconds to make."""
    return hard(shape, 2, dtype, special=True)


def compare(machine, preset, shape, dtype):
    """Quantize and decode on both; raise if a bit differs."""
    x = data(shape, dtype)
    plan = make_plan(qn.PRESETS[preset], shape)
    words = machine.empty(plan.words_shape, plan.words_dtype)
    params, _ = operations.quantize(put(machine, x), plan, CLIP, None, words)
    backend = reference if machine.emulated else cpu  # the emulator needs nothing compiled
    expected = np.empty(plan.words_shape, plan.words_dtype)
    wanted, _ = backend.quantize(x, plan, CLIP, None, expected)
    for name, mine, other in zip(params._fields, params, wanted, strict=True):
        if other is not None:
            assert_same_bits(machine.get(mine), np.asarray(other), f"{preset}: {name}")
    assert_same_bits(machine.get(words), expected, f"{preset}: words")
    numbers = np.empty(shape, DTYPES[dtype])
    backend.dequantize(expected, plan, wanted, numbers)
    out = machine.empty(shape, "uint16" if dtype == "bfloat16" else dtype)
    operations.dequantize(words, plan, params, tagged(out, dtype))
    assert_same_bits(machine.get(out).view(DTYPES[dtype]), numbers, f"{preset}: decoded")


def bits(session):
    """Compare every preset with the CPU: float32 at three sizes, the others at the first."""
    emulated = session.machine.emulated
    sizes = SIZES[emulated][:1] if session.small else SIZES[emulated]
    for preset in session.presets:
        for dtype in NARROW:
            for shape in sizes if dtype == "float32" else sizes[:1]:
                if session.late():
                    yield {"preset": preset, "dtype": dtype, "shape": shape, "same": None}
                    continue
                row = {"preset": preset, "dtype": dtype, "shape": shape, "same": True}
                try:
                    compare(session.machine, preset, shape, dtype)
                except AssertionError as error:
                    row |= {"same": False, "error": str(error)[:500]}
                yield row


# --- bandwidth


@contextlib.contextmanager
def pooled():
    """Let calls of the same form share what they allocate, so that kernels alone are timed."""
    held, asked, allocate = {}, {}, driver.allocate

    def again(shape, dtype, handle):
        key = (shape, str(dtype))
        asked[key] = asked.get(key, -1) + 1
        key = (*key, asked[key])
        if key not in held:
            held[key] = allocate(shape, dtype, handle)
        return held[key]

    driver.allocate = again
    try:
        yield asked.clear
    finally:
        driver.allocate = allocate


def timed(session, what, call, least, moved, copy):
    """Return the row of a kernel: bytes a second, as a share of a copy's."""
    seconds = session.machine.seconds(call)
    row = dict(what, least_bytes=least, moved_bytes=moved)
    if seconds:
        speed = moved / seconds
        row |= {"microseconds": seconds * 1e6, "terabytes_a_second": speed / 1e12}
        row["share_of_copy"] = speed / copy if copy else None
    return row


def bandwidth(session):
    """Time every kernel on one large array of each dtype, and a copy before and after."""
    machine, shape = session.machine, TIMED[session.machine.emulated]
    numbers = np.random.default_rng(0).standard_normal(shape, np.float32)
    held, other = machine.put(numbers), machine.empty(shape, np.float32)
    copied = {"operation": "copy", "dtype": "float32"}
    row = timed(session, copied, lambda: machine.copy(other, held), *[2 * numbers.nbytes] * 2, None)
    copy = row.get("terabytes_a_second", 0) * 1e12
    yield row
    for dtype in NARROW:
        x = numbers.astype(DTYPES[dtype])
        source = put(machine, x)
        out = machine.empty(shape, "uint16" if x.dtype == BFLOAT16 else dtype)
        for preset in session.presets:
            if session.late():
                yield {"preset": preset, "dtype": dtype, "skipped": "out of time"}
                continue
            yield from operations_of(session, preset, source, tagged(out, dtype), x.nbytes, copy)
    yield timed(session, copied, lambda: machine.copy(other, held), *[2 * numbers.nbytes] * 2, copy)


def operations_of(session, preset, source, out, size, copy):
    """Yield the rows of a preset's three operations on one array."""
    plan = make_plan(qn.PRESETS[preset], out.shape)
    words = session.machine.empty(plan.words_shape, plan.words_dtype)
    coded = plan.words_dtype.itemsize * int(np.prod(plan.words_shape)) + 4 * int(np.prod(plan.grid))
    again = 0 if routes.is_fused(plan, CLIP) and not plan.scheme.two_level else size
    with pooled() as restart:
        params, _ = operations.quantize(source, plan, CLIP, None, words)

        def calibrated():
            restart()
            operations.quantize(source, plan, CLIP, None, words)

        def given():
            restart()
            operations.quantize(source, plan, CLIP, params, words)

        def decoded():
            operations.dequantize(words, plan, params, out)

        what = {"preset": preset, "dtype": out.dtype}
        least = size + coded
        for name, call, moved in (
            ("calibrate and quantize", calibrated, least + again),
            ("quantize", given, least),
            ("dequantize", decoded, least),
        ):
            yield timed(session, what | {"operation": name}, call, least, moved, copy)
        session.machine.wait()


# --- others, launches, sanitizer


def peers(session):
    """Time what other libraries that are installed here offer for the same."""
    if session.machine.emulated:
        yield from ({"peer": peer.title, "skipped": "needs a GPU"} for peer in PEERS)
        return
    shape = TIMED[False]
    for peer in PEERS:
        row = {"peer": peer.title}
        try:
            call, moved = peer.made(shape)
            yield timed(session, row, call, moved, moved, None)
        except Exception as error:  # noqa: BLE001 - another library's failure is a row
            yield row | {"skipped": f"{type(error).__name__}: {error}"[:300]}


def launches(session):
    """Time calls on a small array, from the host's side; nothing is waited for between them."""
    machine = session.machine
    x = machine.put(np.random.default_rng(0).standard_normal((32, 256)).astype(np.float32))
    for preset in ("int8", "int4", "nvfp4"):
        q = qn.quantize(x, preset, nonfinite="clip")
        params = q.params
        plan = make_plan(qn.PRESETS[preset], x.shape)
        out = machine.empty(x.shape, np.float32)
        words = machine.empty(plan.words_shape, plan.words_dtype)
        calls = {
            "quantize, clip": lambda p=preset: qn.quantize(x, p, nonfinite="clip"),
            "quantize, raise": lambda p=preset: qn.quantize(x, p),
            "quantize with params, into out": lambda p=preset, q=q, params=params: qn.quantize(
                x, p, params=params, nonfinite="clip", out=q
            ),
            "backend's quantize": lambda plan=plan, words=words: operations.quantize(
                x, plan, CLIP, None, words
            ),
            "dequantize into out": lambda q=q, out=out: q.dequantize(out=out),
        }
        for name, call in calls.items():
            call()
            machine.wait()
            count = 1 if machine.emulated else 300
            start = time.perf_counter()
            for _ in range(count):
                call()
            seconds = (time.perf_counter() - start) / count
            machine.wait()
            row = {"preset": preset, "call": name}
            yield row if machine.emulated else row | {"microseconds": seconds * 1e6}


def sanitizer(session):
    """Run the bits at the smallest size under compute-sanitizer's checks."""
    program = shutil.which("compute-sanitizer")
    for tool in ("memcheck", "racecheck"):
        row = {"tool": tool}
        if program is None or session.machine.emulated:
            yield row | {"skipped": "compute-sanitizer is not on PATH, or nothing to run it on"}
            continue
        left = session.deadline - time.perf_counter()
        command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m"]
        command += ["benchmarks.gpu", "--small", "--save", str(SAVED.with_suffix(f".{tool}.json"))]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=max(left, 60)
        )
        yield row | {"status": done.returncode, "tail": (done.stdout + done.stderr)[-1500:]}


SECTIONS = {
    section.__name__: section for section in (about, bits, bandwidth, peers, launches, sanitizer)
}


def run(session, names):
    """Run sections; return what each found. Neither a failure nor lateness stops the rest."""
    found = {}
    for name in names:
        start, rows, error = time.perf_counter(), [], None
        print(f"== {name}", flush=True)
        try:
            for row in SECTIONS[name](session):
                rows.append(row)
                print(" ".join(f"{key}={_short(value)}" for key, value in row.items()), flush=True)
        except Exception as failure:  # noqa: BLE001 - reported, and the others run
            error = f"{type(failure).__name__}: {failure}"
            print(f"{name} failed: {error}", flush=True)
        seconds = time.perf_counter() - start
        found[name] = {"rows": rows, "error": error, "seconds": round(seconds, 1)}
    compared = found["bits"]
    rows = compared["rows"]
    found["same_bits"] = compared["error"] is None and all(row["same"] for row in rows)
    return found


def _short(value):
    return f"{value:.4g}" if isinstance(value, float) else value


def main(arguments=None):
    """Run the sections, save what they found, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--emulate", action="store_true", help="run on the emulator, tiny")
    parser.add_argument("--small", action="store_true", help="compare bits at one size, no more")
    parser.add_argument("--presets", nargs="*", choices=qn.PRESETS, help="default: all")
    parser.add_argument("--minutes", type=float, default=6.0, help="begin no work after that")
    parser.add_argument("--save", type=Path, default=SAVED, help="where the JSON goes")
    given = parser.parse_args(arguments)
    presets = tuple(given.presets or (SMALL if given.small else qn.PRESETS))
    names = ["about", "bits"] if given.small else list(SECTIONS)
    with contextlib.ExitStack() as stack:
        machine = Gpu() if not given.emulate else None
        if given.emulate:
            from emulator.device import SM90, emulated

            machine = Emulator(stack.enter_context(emulated(SM90, 1 << 27)))
        deadline = time.perf_counter() + 60 * given.minutes
        found = run(Session(machine, presets, given.small, deadline), names)
    given.save.parent.mkdir(parents=True, exist_ok=True)
    given.save.write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")
    print(f"same bits: {found['same_bits']}; wrote {given.save}")
    return 0 if found["same_bits"] else 1


if __name__ == "__main__":
    sys.exit(main())
