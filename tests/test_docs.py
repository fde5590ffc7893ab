"""Every code block of the README and the documentation runs and prints what the page says."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import make_tables
import pytest
from burn_conditions import CONDITIONS, check

import qnumba
from qnumba.cli.show import COMPILING

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = {path.name: path for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))}
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A working directory of its own, with a qnumba command for the Python that runs the tests."""
    command = tmp_path / "bin" / "qnumba"
    command.parent.mkdir()
    here = Path(qnumba.__file__).parents[1]
    script = f'#!/bin/sh\nPYTHONPATH="{here}" exec "{sys.executable}" -m qnumba "$@"\n'
    command.write_text(script, encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MPLBACKEND", "agg")
    place = tmp_path / "desk"
    place.mkdir()
    monkeypatch.chdir(place)


TIME = re.compile(r"\d[\d.]* (?:us|ms|s)\b")


def same(said, printed):
    """Whether output is what a page says: '...' stands for anything, a time for any time."""
    said, printed = (TIME.sub("TIME", text) or "\n" for text in (said, printed))
    return doctest.OutputChecker().check_output(said, printed, FLAGS)


def run_python(text, names, where):
    """Run a block: an interpreter session where it has prompts, else a program."""
    if ">>>" not in text:
        exec(compile(text, where, "exec"), names)  # noqa: S102 - our own pages
        return
    session = doctest.DocTestParser().get_doctest(text, names, where, where, 0)
    report = []
    doctest.DocTestRunner(optionflags=FLAGS).run(session, out=report.append, clear_globs=False)
    names.update(session.globs)
    assert not report, "".join(report)


def run_command(command):
    """Run one line of shell as on a terminal and return what it prints."""
    done = subprocess.run(
        ["bash", "-c", command],  # noqa: S607 - whichever bash the reader has
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout.replace(f"{COMPILING}\n", "")  # said once on a machine


def run_console(text, _names, where):
    """Run the qnumba commands of a terminal session and compare what they print."""
    for part in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, said = part.partition("\n")
        if command.startswith("qnumba"):
            printed = run_command(command)
            assert same(said, printed), f"{where}: {command}\nsaid:\n{said}\nprinted:\n{printed}"


def run_bash(text, _names, _where):
    """Run the qnumba commands of a list of commands."""
    for command in text.replace("\\\n", " ").splitlines():
        if command.startswith("qnumba"):
            run_command(command)


RUN = {"python": run_python, "console": run_console, "bash": run_bash}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.usefixtures("desk")
def test_every_block_of_a_page_runs(name):
    text = PAGES[name].read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert text.count("```") == 2 * len(blocks), "a block has no language, or is indented"
    names = {"__name__": "__main__"}
    for block in blocks:
        language, code = block.groups()
        line = text.count("\n", 0, block.start()) + 1
        if language in RUN:
            RUN[language](code, names, f"{name}:{line}")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files(name):
    text = PAGES[name].read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (PAGES[name].parent / target).exists(), f"{name} links to {target}"


@pytest.mark.parametrize("name", PAGES)
def test_tables_are_what_the_code_says(name):
    text = PAGES[name].read_text(encoding="utf-8")
    assert make_tables.filled(text) == text, "run: python docs/make_tables.py"


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.message[:50])
def test_what_the_page_on_burn_says_is_so(condition):
    if condition.code:
        check(condition)


@pytest.mark.parametrize("picture", ["presets.svg", "report.png"])
def test_pictures_can_be_made_again(picture, tmp_path):
    make_pictures = pytest.importorskip("make_pictures")
    make_pictures.make(tmp_path)
    assert (tmp_path / picture).stat().st_size > 0
    assert (DOCS / "img" / picture).exists()
