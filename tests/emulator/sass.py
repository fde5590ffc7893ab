"""What the assembler makes of the CUDA kernels, and how much of it a launch executes.

The assembler is told to keep which line of PTX each instruction comes from; the emulator counts how
many threads come to each line. Together they say how many instructions are issued.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import qnumba
from cuda_support import hard, put, tagged
from emulator.device import SM80, SM90, SM100, emulated
from qnumba.params import Options

HINT = "pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm"
NAMES = {SM80: "sm_80", SM90: "sm_90a", SM100: "sm_100a"}
SHAPE = (256, 512)
# An H200: bytes a second of a copy, multiprocessors, clock, lanes that issue at a clock.
BANDWIDTH, MULTIPROCESSORS, CLOCK, LANES = 4.3e12, 132, 1.755e9, 128
THREADS, REGISTERS, MOST_THREADS = 256, 65536, 2048
_CODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.*?);")
_LINE = re.compile(r'//## File "[^"]*", line (\d+)')
_LABEL = re.compile(r"(\.L_x_\d+):")
_JUMP = re.compile(r"BRA `\((\.L_x_\d+)\)")
_SLOW = re.compile(r"^\$__internal|^\.text\.\$__internal", re.MULTILINE)


class Work(NamedTuple):
    """A call whose kernel is looked at, and the bytes an element of it moves."""

    title: str
    scheme: str
    dtype: str
    kernel: str
    bytes: float

    @property
    def budget(self) -> float:
        """Instructions an element that an H200 issues while it moves the bytes."""
        return LANES * MULTIPROCESSORS * CLOCK / (BANDWIDTH / self.bytes)


WORKS = [
    Work("int8 of float32, range", "int8", "float32", "range_tensor", 4),
    Work("int8 of float32, encode", "int8", "float32", "encode_runs", 5),
    Work("int8 to float32", "int8", "float32", "decode_runs", 5),
    Work("int4 of float32", "int4", "float32", "quantize_blocks", 4.5 + 4 / 32),
    Work("int4 of bfloat16", "int4", "bfloat16", "quantize_blocks", 2.5 + 4 / 32),
    Work("int4 to bfloat16", "int4", "bfloat16", "decode_runs", 2.5 + 4 / 32),
    Work("mxfp8 of float32", "mxfp8", "float32", "quantize_blocks", 5 + 4 / 32),
    Work("mxfp8 of bfloat16", "mxfp8", "bfloat16", "quantize_blocks", 3 + 4 / 32),
    Work("mxfp8 to bfloat16", "mxfp8", "bfloat16", "decode_runs", 3 + 4 / 32),
    Work("nvfp4 of bfloat16", "nvfp4", "bfloat16", "quantize_blocks", 2.5 + 4 / 16),
    Work("nvfp4 to bfloat16", "nvfp4", "bfloat16", "decode_runs", 2.5 + 4 / 16),
    Work("nf4 of float32", "nf4", "float32", "quantize_blocks", 4.5 + 4 / 64),
    Work("nf4 of bfloat16", "nf4", "bfloat16", "quantize_blocks", 2.5 + 4 / 64),
    Work("nf4 to bfloat16", "nf4", "bfloat16", "decode_runs", 2.5 + 4 / 64),
    Work("fp8_block of bfloat16, range", "fp8_block", "bfloat16", "range_runs", 2),
    Work("fp8_block of bfloat16, encode", "fp8_block", "bfloat16", "encode_runs", 3),
]


class Built(NamedTuple):
    """What the assembler says of a kernel: each instruction with the line of PTX it comes from."""

    registers: int
    spilled: int
    stack: int
    code: list[tuple[int, str]]

    @property
    def opcodes(self) -> set[str]:
        """The opcodes there are."""
        return {opcode(text) for _, text in self.code}

    @property
    def occupancy(self) -> float:
        """Share of the threads of a multiprocessor that its registers allow."""
        blocks = REGISTERS // (-(-self.registers // 8) * 8 * THREADS)
        return min(1.0, blocks * THREADS / MOST_THREADS)


def opcode(text: str) -> str:
    """Return the opcode of an instruction."""
    return re.sub(r"^@!?U?P\w+\s+", "", text).split()[0]


@cache
def tool(name: str) -> str | None:
    """Return the path of a program of the CUDA toolkit: of the wheels, which fit, or on PATH."""
    packages = Path(sysconfig.get_path("purelib")) / "nvidia"
    return next(map(str, packages.glob(f"*/bin/{name}")), None) or shutil.which(name)


def assembled(ptx: str) -> Built:
    """Assemble PTX and take the result apart; the slow ways of divisions are left out."""
    target = re.search(r"^\.target\s+(\w+)", ptx, re.MULTILINE)[1]
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        command = [tool("ptxas"), "-v", "-lineinfo", f"-arch={target}", str(source)]
        done = subprocess.run(
            [*command, "-o", str(cubin)], capture_output=True, text=True, check=False
        )
        log = done.stdout + done.stderr
        if done.returncode:
            raise RuntimeError(log)
        text = subprocess.run(
            [tool("nvdisasm"), "-c", "-gp", str(cubin)], capture_output=True, text=True, check=True
        ).stdout
    return Built(
        int(re.search(r"Used (\d+) registers", log)[1]),
        sum(map(int, re.findall(r"(\d+) bytes spill", log))),
        sum(map(int, re.findall(r"(\d+) bytes stack", log))),
        _code(_SLOW.split(text)[0]),
    )


def _code(text: str) -> list[tuple[int, str]]:
    """Return the instructions with their lines, without those that lead to a slow division.

    These stand between a branch and the label that it jumps to, around a call.
    """
    line, begin, code, calls, target = 0, 0, [], False, ""
    for row in text.splitlines():
        marked, found, label = _LINE.search(row), _CODE.search(row), _LABEL.match(row)
        line = int(marked[1]) if marked else line
        if label and calls and label[1] == target:
            del code[begin:]
        calls = calls and not label
        if found and found[1].split()[0] != "NOP":
            code.append((line, found[1].strip()))
            jump = _JUMP.search(found[1])
            if jump:
                begin, target = len(code), jump[1]
            calls = calls or found[1].startswith("CALL")
    return code


def measured(work: Work, target: tuple) -> tuple[Built, float]:
    """Run a call on the emulator; return its kernel assembled, and instructions per element.

    The data are plain, so that slow paths are not taken. An instruction that the assembler moved
    or made of several lines counts where it says that it belongs.
    """
    from qnumba.gpu import driver, operations

    driver.forget_kernels()
    with emulated(target, 1 << 28) as device:
        x = hard(SHAPE, 3, work.dtype)
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
    visits = run.line_visits()
    return built, sum(visits[line] for line, _ in built.code) / x.size
