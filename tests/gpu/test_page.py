"""The examples of the page on CUDA run, on the emulator."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from numba import cuda

import cuda_support  # noqa: F401 - skips without numba-cuda
from emulator.device import emulated
from emulator.sass import NAMES, WORKS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cuda.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.cuda_emulated


def test_the_examples_run(monkeypatch):
    (example,) = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    session = doctest.DocTestParser().get_doctest(example, {}, "docs/cuda.md", None, 0)
    assert len(session.examples) > 8
    report = []
    with emulated() as device:
        monkeypatch.setattr(cuda, "to_device", device.put)
        doctest.DocTestRunner().run(session, out=report.append)
    assert not report, "".join(report)


def test_the_table_has_every_kernel():
    for work in WORKS:
        for name in NAMES.values():
            assert f"| {work.title} | {name} |" in PAGE, "run: python benchmarks/sass.py --write"
