"""What the assembler makes of the CUDA kernels: registers, occupancy, spills, instructions.

    python -m benchmarks.sass            # a table, without a GPU
    python -m benchmarks.sass --write    # into docs/cuda.md

Needs ptxas and nvdisasm: ``pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm``, or a toolkit's bin
folder on PATH.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from emulator.sass import HINT, NAMES, WORKS, measured, tool  # noqa: E402

PAGE = ROOT / "docs" / "cuda.md"
MARKS = ("<!-- sass: kernels -->", "<!-- end -->")
HEAD = ("kernel", "target", "registers", "spilled", "occupancy", "instructions", "budget", "wide")


def table() -> list[str]:
    """Return the lines of the table, printing them as they come."""
    lines = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    for work in WORKS:
        for target, name in NAMES.items():
            built, issued = measured(work, target)
            wide = sorted(code for code in built.opcodes if code.startswith(("LDG.E.128", "STG")))
            lines.append(
                f"| {work.title} | {name} | {built.registers} | {built.spilled} "
                f"| {built.occupancy:.0%} | {issued:.1f} | {work.budget:.1f} | {', '.join(wide)} |"
            )
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Print the table, and write it where the documentation has it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/cuda.md")
    write = parser.parse_args().write
    if not (tool("ptxas") and tool("nvdisasm")):
        raise SystemExit(f"ptxas and nvdisasm are not there: {HINT}")
    lines = table()
    if write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        body = "\n".join(lines)
        PAGE.write_text(f"{before}{MARKS[0]}\n\n{body}\n\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
