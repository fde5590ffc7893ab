"""The support table is what a run of every line gives, and a run can fail."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import make_support
import numpy as np
import pytest

import qnumba as qn
from qnumba import reference
from qnumba.formats import MODES, SCALES, STORES, VALUES

CASES = list(make_support.cases())


def test_the_page_is_what_the_command_writes():
    text = make_support.PAGE.read_text(encoding="utf-8")
    assert make_support.filled(text) == text, "run: python docs/make_support.py"


def test_the_table_has_every_scheme():
    for field, names in zip(
        ("mode", "store", "value", "level", "scale"),
        (MODES, STORES, VALUES, make_support.LEVELS, SCALES),
        strict=True,
    ):
        assert {getattr(case, field) for case in CASES} == set(names)
    assert len({case.scheme for case in CASES}) == len(CASES)
    schemes = {case.scheme.replace(block=None, block_scale=None) for case in CASES}
    for preset in qn.PRESETS.values():
        plain = preset.replace(block=None, block_scale=None, tensor_scale=None)
        table = None if plain.table is None else next(
            case.scheme.table for case in CASES
            if case.mode == "lookup" and case.value == preset.value
        )  # fmt: skip
        assert plain.replace(table=table) in schemes


@pytest.mark.parametrize("name", make_support.backends())
def test_every_backend_does_every_scheme(name):
    answers = make_support.backends()[name]
    assert not [str(case.scheme) for case in CASES if not make_support.works(answers, case.scheme)]


def refuse(*_):
    raise qn.UnsupportedSchemeError("no")


def wrong(words, plan, params, out):
    reference.dequantize(words, plan, params, out)
    out += np.float32(1)


@pytest.mark.parametrize(
    ("quantize", "dequantize", "right"),
    [
        (reference.quantize, reference.dequantize, True),
        (refuse, reference.dequantize, False),
        (reference.quantize, refuse, False),
        (reference.quantize, wrong, False),
    ],
)
def test_a_wrong_or_missing_operation_shows(quantize, dequantize, right):
    run = make_support.on_host(SimpleNamespace(quantize=quantize, dequantize=dequantize))
    answers = partial(make_support.agrees, run)
    assert make_support.works(answers, qn.PRESETS["int8"]) is right


def test_answers_from_another_machine_are_kept(tmp_path, monkeypatch):
    def run(scheme):
        if scheme.value == "E5M2" or (scheme.value == "U2" and scheme.pack_axis):
            refuse()
        return make_support.on_host(reference)(scheme)

    monkeypatch.setattr(make_support, "RECORD", tmp_path / "record.toml")
    make_support.record(run, 'a "device"')
    answers = make_support.backends()["CUDA"]
    for case in CASES:
        fails = case.value == "E5M2" or (case.value == "U2" and case.store != "native")
        assert make_support.works(answers, case.scheme) is not fails
    assert 'CUDA was run on a "device".' in make_support.counts()
    assert " CUDA |" in make_support.support()


def test_burns_rows_name_what_there_is_and_speak_of_every_scheme():
    rows = make_support.burn_rows()
    for row in rows:
        for names, known in zip(
            row[1:6], (MODES, STORES, VALUES, make_support.LEVELS, SCALES), strict=True
        ):
            assert set(names) <= set(known)
        assert all((row.ndarray, row.flex, row.cubecl))
    used = {next(row.mark for row in rows if row.fits(case)) for case in CASES}
    assert used == {row.mark for row in rows}
