"""The command line as a process: help, pipes, signals, and the progress bar."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qnumba.cli import show
from qnumba.cli.arguments import COMMANDS
from qnumba.io.safetensors import save_safetensors

COMMAND = [sys.executable, "-m", "qnumba"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_safetensors("m.safetensors", {"w": np.ones((4, 32), np.float32)})


def test_every_command_has_help():
    for name in ("", *COMMANDS):
        run = subprocess.run(
            [*COMMAND, *name.split(), "--help"], capture_output=True, text=True, check=True
        )
        assert run.stdout.startswith("usage: qnumba")
        assert run.stderr == ""


def test_a_closed_pipe_is_no_error():
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, "presets"], stdout=pipe, stderr=pipe) as run:
        run.stdout.close()
        assert run.stderr.read() == b""
        assert run.wait() == 141


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_standard_output_is_named():
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [*COMMAND, "presets"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert run.returncode == 1
    assert run.stderr == "qnumba: standard output: No space left on device\n"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_cleanly(number):
    Path("slow.py").write_text(
        "import sys, time, qnumba.cli.convert as convert\n"
        "def slow(*args, **options):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "convert.quantize = slow\n"
        "from qnumba.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n",
        encoding="utf-8",
    )
    words = ["quantize", "m.safetensors", "--scheme", "int8", "-o", "o.safetensors"]
    before = set(Path().iterdir())
    run = subprocess.Popen(
        [sys.executable, "slow.py", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert run.stdout.readline() == b"ready\n"
    assert any(path.name.startswith(".qnumba-") for path in Path().iterdir())
    run.send_signal(number)
    assert run.stderr.read() == b""
    assert run.wait() == 128 + number
    run.stdout.close()
    run.stderr.close()
    assert set(Path().iterdir()) == before


def test_nothing_but_the_result_when_piped():
    words = ["quantize", "m.safetensors", "--scheme", "int8", "-o", "o.safetensors", "--json"]
    run = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=True)
    assert run.stderr in {"", f"{show.COMPILING}\n"}
    assert json.loads(run.stdout)["output"] == "o.safetensors"


# --- the bar ---


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("tqdm", [True, False])
def test_a_bar_is_drawn_on_a_terminal_and_wiped(monkeypatch, tqdm):
    if tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(show, "BAR_INTERVAL", 0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with show.progress(4000, "working") as bar:
        for _ in range(4):
            bar.update(1000)
    drawn = sys.stderr.getvalue()
    assert all(share in drawn for share in ("working", "  0%", " 50%", "100%"))
    assert drawn.endswith(("\r", "\r\x1b[K"))


def test_no_bar_where_nobody_watches(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with show.progress(1, "working") as bar:
        bar.update(1)
    assert sys.stderr.getvalue() == ""


# --- words for people ---


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (589_824, "590 kB"),
        (999_900, "1 MB"),
        (10**16, "10 PB"),
        (10**30, "1e+12 EB"),
    ],
)
def test_sizes(nbytes, text):
    assert show.size(nbytes) == text


def test_tables_line_up():
    rows = [("a", "b"), ("long", "1"), ("x", "")]
    assert show.table(rows, "<>") == "a     b\nlong  1\nx"


def test_text_from_files_cannot_move_the_cursor():
    assert show.clean("w\x1b[2Jé") == "w\\x1b[2Jé"
