"""The benchmark: what it runs, what it refuses, what it writes. No figure is asserted."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest

import qnumba as qn
from qnumba import cpu
from qnumba.bench import measure, processes, run
from qnumba.bench.cases import CACHED, CASES, LARGE, MIB, OPS, chosen, parse_size, size_text
from qnumba.bench.peers import Job
from qnumba.bench.processes import Request
from qnumba.bench.rooflines import LOOPS, roofline
from qnumba.cli import main
from qnumba.errors import DataError, SchemeError
from qnumba.validate import as_scheme, require

ROOT = Path(__file__).resolve().parents[1]
TINY = ("--sizes", "4KiB", "--seconds", "0.001")


@pytest.fixture
def bench(capsys):
    """Run the command on tiny arrays; return what it printed."""

    def run_it(*words, status=0):
        assert main(["bench", *words, *TINY]) == status
        return capsys.readouterr().out

    return run_it


@pytest.fixture
def refused(capsys):
    """Run a command that is refused; return why."""

    def run_it(*words):
        try:
            status = main(["bench", *words])
        except SystemExit as end:
            status = end.code
        out, err = capsys.readouterr()
        assert (status in {1, 2}, out) == (True, "")
        return err

    return run_it


@pytest.fixture
def here(monkeypatch):
    """Let this process measure without taking cores."""
    threads = numba.get_num_threads()
    monkeypatch.setattr(run, "take_cores", lambda _: [0])
    yield
    numba.set_num_threads(threads)


# --- the table


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_a_case_can_be_done(case):
    for nbytes in (4, 4096, CACHED, LARGE):
        shape = case.shape(nbytes)
        assert 0 < np.prod(shape, dtype=int) <= max(1, nbytes // 2)
    require(as_scheme(case.scheme), case.shape(LARGE), case.dtype)
    assert case.op in OPS
    assert set(case.roofline.split("+")) <= set(LOOPS)
    assert case.shape(LARGE)[0] >= case.rows


def test_every_preset_is_measured_both_ways():
    for op in ("quantize", "dequantize"):
        schemes = {as_scheme(case.scheme) for case in CASES.values() if case.op == op}
        assert set(qn.PRESETS.values()) <= schemes


def test_cases_are_chosen_by_name_and_by_operation():
    assert chosen([]) == list(CASES.values())
    assert [case.name for case in chosen(["NVFP4", "MXFP4"])] == ["NVFP4", "MXFP4"]
    assert {case.op for case in chosen(["encode"])} == {"encode"}


@pytest.mark.parametrize(
    ("text", "nbytes"), [("64", 64), ("64B", 64), ("2KiB", 2048), ("1 mib", MIB), ("1GiB", 2**30)]
)
def test_sizes(text, nbytes):
    assert parse_size(text) == nbytes
    assert parse_size(size_text(nbytes)) == nbytes


@pytest.mark.parametrize("text", ["", "3", "1 MB", "-4", "1.5MiB", "x"])
def test_what_is_no_size(text):
    with pytest.raises(SchemeError, match="write it as 64KiB"):
        parse_size(text)


# --- bits before times


def broken(operation):
    """Return an operation of the CPU backend with one bit of its result wrong."""

    def plain(*given):
        result = operation(*given)
        arrays = [a for a in given if isinstance(a, np.ndarray) and a.flags.writeable]
        if isinstance(result, tuple):
            params, seen = result
            scales = params.scales.copy()
            scales.view(np.uint32).reshape(-1)[0] ^= 1
            result = (params._replace(scales=scales), seen)
        for array in arrays[-1:]:
            array.view(np.uint8).reshape(-1)[0] ^= 1
        return result

    return plain


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_bits_are_those_of_the_reference(case):
    measure.check(case)


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("quantize", "affine int8"),
        ("quantize", "MXFP4"),
        ("dequantize", "NVFP4 to float32"),
        ("calibrate", "min and max"),
    ],
)
def test_a_wrong_bit_is_not_timed(operation, name, monkeypatch, here):
    monkeypatch.setattr(cpu, operation, broken(getattr(cpu, operation)))
    with pytest.raises(DataError, match=f"{name}: the result differs"):
        measure.check(CASES[name])
    (line,) = run.answer(json.dumps(Request([name], [4096], seconds=0.0)))
    assert "differs from the reference" in json.loads(line)["refused"]


def test_calls_take_turns():
    turns = []
    times = measure.interleaved({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, 0)
    assert times.keys() == {"a", "b"}
    assert min(times.values()) > 0
    assert turns[-1] == "b"
    assert "".join(turns).count("ab") >= measure.FEWEST_ROUNDS


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", [*LOOPS, "r4+r4w1"])
def test_every_roofline_runs(name, threads):
    roofline(name, np.zeros(1000, np.float16 if "2" in name else np.float32), threads)()


# --- the command


def test_the_command_writes_json(bench):
    names = ["affine int8", "min and max", "MXFP4", "NVFP4 to float32", "int8, given of float16"]
    result = json.loads(bench("--ops", *names, "--json"))
    assert [row["case"] for row in result["rows"]] == sorted(names, key=list(CASES).index)
    assert result["machine"]["cpu"]
    assert result["versions"]["qnumba"] == qn.__version__
    for row in result["rows"]:
        assert row["library"] == "qnumba"
        assert row["nbytes"] == 4096
        assert row["seconds"] > 0
        assert row["ratio"] == pytest.approx(row["gb_per_s"] / row["roofline_gb_per_s"])
        assert (row["snr_db"] is None) == (row["op"] == "calibrate")


def test_the_command_writes_a_table_and_a_page(bench, tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "bench.html"
    text = bench("--ops", "MXFP4", "--html", str(page))
    assert "roofline" in text
    assert "numba" in text
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") == html.count("</svg>") == 1
    assert "<td>MXFP4</td><td>4 KiB</td>" in html


def test_what_the_command_refuses(refused):
    assert "'frobnicate' is no operation and no case" in refused("--ops", "frobnicate")
    assert "write it as 64KiB" in refused("--sizes", "1MB")
    assert "is no number of threads" in refused("--threads", "0")
    assert "is no library that takes part" in refused("--peers", "nothing")
    assert "create it first" in refused("--html", "nowhere/page.html")
    many = str(len(measure.available_cores()) + 1)
    assert f"{many} threads need {many} cores" in refused("--ops", "MXFP4", "--threads", many)


def test_a_process_that_dies_is_reported(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 7\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(DataError, match="that measured qnumba ended with status 7"):
        list(processes.run(Request(["MXFP4"], [4096])))
    guest = SimpleNamespace(name="guest", family="plain", jobs={"mxfp4": None})
    (row,) = processes._guests(Request(["MXFP4"], [4096], family="plain", peers=[guest.name]))
    assert "that measured guest ended with status 7" in row["note"]


# --- other libraries


def test_other_libraries_stand_beside(monkeypatch, here):
    def works(x, threads):
        return Job(lambda: x.sum() / threads, lambda: x)

    def forgets(x, threads):
        return Job(lambda: None, lambda: x.round())

    def fails(x, threads):
        raise RuntimeError("no such kernel")

    def peer(name, family, job):
        return SimpleNamespace(name=name, package="numpy", family=family, jobs={"mxfp4": job})

    peers = (
        peer("one", "plain", works),
        peer("two", "plain", fails),
        peer("three", "own", works),
        peer("four", "plain", forgets),
    )
    monkeypatch.setitem(sys.modules, "qnumba.bench.peers", SimpleNamespace(PEERS=peers))
    assert processes.chosen_peers(None) == ([], [])
    assert processes.chosen_peers([])[0] == list(peers)
    assert processes.chosen_peers(["two"]) == ([peers[1]], [])
    names = ["one", "two", "four"]
    request = Request(["MXFP4", "MXFP8"], [4096], seconds=0.0, family="plain", peers=names)
    rows = list(run.measured(request))
    broke, lost = [row["note"] for row in rows if "note" in row]
    assert broke == "two did not do MXFP4: RuntimeError: no such kernel"
    assert re.match(r"four did not do MXFP4: DataError: its result has an SNR of \d.* dB", lost)
    done = [(row["case"], row["library"]) for row in rows if "case" in row]
    assert done == [("MXFP4", "qnumba"), ("MXFP4", "one"), ("MXFP8", "qnumba")]
    (guest,) = [row for row in rows if row.get("library") == "one"]
    ours = next(row for row in rows if row.get("library") == "qnumba")
    assert guest["qnumba_times_as_fast"] == pytest.approx(guest["seconds"] / ours["seconds"])


# --- the scripts


@pytest.mark.parametrize(
    ("script", "words", "says"),
    [
        ("gates.py", ["--ops", "MXFP4", *TINY], "0 of 1 figures fall short"),
        (
            "cliffs.py",
            ["--only", "E2M1 block=8:F32 pack_axis=1", "--mib", "1"],
            "dequantize, plain",
        ),
    ],
)
def test_a_script_runs(script, words, says):
    command = [sys.executable, str(ROOT / "benchmarks" / script), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert says in done.stdout
    assert words[1] in done.stdout


# --- the page


def test_the_page_has_every_case_and_its_targets():
    docs = ROOT / "docs"
    text = (docs / "benchmarks.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"<!-- bench: (\w+) -->\n(.*?)<!-- end -->", text, re.DOTALL))
    assert all(parts.values()), "run: python benchmarks/page.py --write"
    rows = [line.strip("| ").split(" | ") for line in parts["ratios"].splitlines()[2:]]
    wanted = [
        [case.name, f"`{case.scheme}`", case.roofline, f"{case.target:.2f}"]
        for case in CASES.values()
    ]
    assert [row[:4] for row in rows] == wanted, "run: python benchmarks/page.py --write cases"
    for picture in re.findall(r"img/bench-\w+\.svg", text):
        assert (docs / picture).exists()
