"""What the assembler makes of the CUDA kernels: registers, occupancy, spills, instructions.

    python -m benchmarks.sass            # a table, without a GPU
    python -m benchmarks.sass --write    # into docs/cuda.md

Needs ptxas and nvdisasm: ``pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm``, or a toolkit's bin
folder on PATH.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import qnumba  # noqa: E402
from cuda_support import hard, put, tagged  # noqa: E402
from emulator.device import SM80, SM90, SM100, emulated  # noqa: E402
from qnumba.gpu import driver, operations  # noqa: E402
from qnumba.params import Options  # noqa: E402

PAGE = ROOT / "docs" / "cuda.md"
MARKS = ("<!-- table: sass -->", "<!-- end -->")
THREADS = 256
# An H200: bytes a second, multiprocessors, clock, lanes that issue at a clock.
BANDWIDTH, MULTIPROCESSORS, CLOCK, LANES = 4.3e12, 132, 1.755e9, 128
REGISTERS, MOST_THREADS = 65536, 2048
NAMES = {SM80: "sm_80", SM90: "sm_90a", SM100: "sm_100a"}


class Work(NamedTuple):
    """A call whose kernel is looked at, and the bytes an element of it moves."""

    title: str
    scheme: str
    dtype: str
    kernel: str
    bytes: float


WORKS = [
    Work("int8 of float32, range", "int8", "float32", "range_tensor", 4),
    Work("int8 of float32, encode", "int8", "float32", "encode_runs", 5),
    Work("int8 to float32", "int8", "float32", "decode_runs", 5),
    Work("int4 of bfloat16", "int4", "bfloat16", "quantize_blocks", 2.5 + 4 / 32),
    Work("int4 to bfloat16", "int4", "bfloat16", "decode_runs", 2.5 + 4 / 32),
    Work("mxfp8 of bfloat16", "mxfp8", "bfloat16", "quantize_blocks", 3 + 4 / 32),
    Work("mxfp8 to bfloat16", "mxfp8", "bfloat16", "decode_runs", 3 + 4 / 32),
    Work("nvfp4 of bfloat16", "nvfp4", "bfloat16", "quantize_blocks", 2.5 + 4 / 16),
    Work("nvfp4 to bfloat16", "nvfp4", "bfloat16", "decode_runs", 2.5 + 4 / 16),
    Work("fp8_block of bfloat16, range", "fp8_block", "bfloat16", "range_runs", 2),
    Work("fp8_block of bfloat16, encode", "fp8_block", "bfloat16", "encode_runs", 3),
]


class Built(NamedTuple):
    """What the assembler says of a kernel, and its instructions."""

    registers: int
    spills: int
    lines: list[str]


def tool(name: str) -> str:
    """Return the path of a program of the CUDA toolkit: of the wheels, which fit, or on PATH."""
    packages = Path(sysconfig.get_path("purelib")) / "nvidia"
    found = next(map(str, packages.glob(f"*/bin/{name}")), None) or shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not there: pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm")
    return found


def assembled(ptx: str) -> Built:
    """Assemble PTX and take the result apart."""
    target = re.search(r"^\.target\s+(\w+)", ptx, re.MULTILINE)[1]
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        command = [tool("ptxas"), "-v", f"-arch={target}", str(source), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        if done.returncode:
            raise SystemExit(log)
        text = subprocess.run(
            [tool("nvdisasm"), "-c", str(cubin)], capture_output=True, text=True, check=True
        ).stdout
    lines = [found[1].strip() for found in re.finditer(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", text)]
    spills = sum(map(int, re.findall(r"(\d+) bytes spill", log)))
    return Built(int(re.search(r"Used (\d+) registers", log)[1]), spills, lines)


def opcode(line: str) -> str:
    """Return the opcode of an instruction."""
    return re.sub(r"^@!?U?P\w+\s+", "", line).split()[0]


def measured(work: Work, target: tuple) -> tuple[Built, float]:
    """Run a call on the emulator; return its kernel assembled, and instructions per element.

    Instructions are those of PTX that were executed, a lane each, on plain data: what issues on
    the straight way, slow paths left out. ptxas folds some of them and adds others.
    """
    driver.forget_kernels()
    with emulated(target, 1 << 28) as device:
        x = hard((256, 512), 3, work.dtype)
        source = put(device, (np.abs(x.astype(np.float32)) + 1).astype(x.dtype))
        plan = qnumba.layout.plan(qnumba.Scheme.parse(work.scheme), x.shape)
        words = device.empty(plan.words_shape, plan.words_dtype)
        params, _ = operations.quantize(source, plan, Options(nonfinite="clip"), None, words)
        stored = "uint16" if work.dtype == "bfloat16" else work.dtype
        out = device.empty(x.shape, stored)
        operations.dequantize(words, plan, params, tagged(out, work.dtype))
        run = next(run for run in device.runs if work.kernel in run.kernel.name)
        texts = (
            kernel._codelibrary.get_asm_str(cc=target)
            for dispatcher in driver.compiled_kernels()
            for kernel in dispatcher.overloads.values()
        )
        built = assembled(next(text for text in texts if run.kernel.name in text))
    return built, sum(run.count.values()) / x.size


def table() -> list[str]:
    """Return the lines of the table, printing them as they come."""
    head = "| kernel | target | registers | spilled | occupancy | instructions | budget | wide |"
    lines = [head, "| --- " * (head.count("|") - 1) + "|"]
    for work in WORKS:
        budget = LANES * MULTIPROCESSORS * CLOCK / (BANDWIDTH / work.bytes)
        for target, name in NAMES.items():
            built, issued = measured(work, target)
            blocks = REGISTERS // (-(-built.registers // 8) * 8 * THREADS)
            occupancy = min(1, blocks * THREADS / MOST_THREADS)
            codes = {opcode(line) for line in built.lines}
            wide = sorted(code for code in codes if code.startswith(("LDG", "STG")))
            lines.append(
                f"| {work.title} | {name} | {built.registers} | {built.spills} "
                f"| {occupancy:.0%} | {issued:.1f} | {budget:.1f} | {', '.join(wide)} |"
            )
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Print the table, and write it where the documentation has it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/cuda.md")
    write = parser.parse_args().write
    lines = table()
    if write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        body = "\n".join(lines)
        PAGE.write_text(f"{before}{MARKS[0]}\n\n{body}\n\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
