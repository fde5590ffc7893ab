"""The benchmark for a GPU runs to its end on the emulator, and says so where bits differ."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import cuda_support  # noqa: F401 - skips without numba-cuda

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.cuda_emulated


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import gpu

    return gpu


def found_by(gpu, path, *arguments):
    """Run the benchmark; return its status and what it saved."""
    status = gpu.main(["--emulate", "--save", str(path), *arguments])
    return status, json.loads(path.read_text(encoding="utf-8"))


def test_every_section_runs_on_the_emulator(gpu, tmp_path):
    status, found = found_by(gpu, tmp_path / "a" / "gpu.json", "--presets", "int8", "nvfp4")
    assert status == 0
    assert set(found) == {*gpu.SECTIONS, "same_bits"}
    for name in gpu.SECTIONS:
        assert found[name]["error"] is None
        assert found[name]["rows"]
    assert len(found["bits"]["rows"]) == 2 * (3 + 1 + 1)
    assert all(row["same"] for row in found["bits"]["rows"])
    timed = [row for row in found["bandwidth"]["rows"] if row["operation"] != "copy"]
    assert len(timed) == 2 * 3 * 3
    assert not any("microseconds" in row for row in timed)  # the emulator has no time


def test_differences_and_failures_are_reported(gpu, tmp_path, monkeypatch):
    def wrong(machine, preset, shape, dtype):
        assert dtype != "float16", "bits differ"

    def broken(_session):
        yield {"fine": True}
        raise ValueError("no device")

    monkeypatch.setattr(gpu, "compare", wrong)
    monkeypatch.setattr(gpu, "SECTIONS", {"bits": gpu.bits, "peers": broken, "about": gpu.about})
    status, found = found_by(gpu, tmp_path / "gpu.json", "--presets", "int8")
    assert status == 1
    assert [row["same"] for row in found["bits"]["rows"]] == [True, True, True, False, True]
    assert found["peers"] == {"rows": [{"fine": True}], "error": "ValueError: no device"} | {
        "seconds": found["peers"]["seconds"]
    }
    assert found["about"]["rows"][0]["device"] == "emulator"


def test_what_was_not_compared_is_not_called_the_same(gpu, tmp_path):
    status, found = found_by(gpu, tmp_path / "gpu.json", "--small", "--minutes", "0")
    assert status == 1
    assert {row["same"] for row in found["bits"]["rows"]} == {None}


def test_peers_and_sanitizer_report_what_is_missing(gpu, monkeypatch, tmp_path):
    machine = gpu.Emulator.__new__(gpu.Emulator)
    machine.emulated = False
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    session = gpu.Session(machine, (), small=False, deadline=0.0)
    rows = list(gpu.peers(session))
    assert len(rows) == len(gpu.PEERS)
    assert all("Error" in row["skipped"] for row in rows)
    program = tmp_path / "compute-sanitizer"
    program.write_text("#!/bin/sh\necho checked $2; exit 9\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    rows = list(gpu.sanitizer(session))
    assert [row["tool"] for row in rows] == ["memcheck", "racecheck"]
    assert all(row["status"] == 9 and "checked" in row["tail"] for row in rows)
