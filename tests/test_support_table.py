"""The support table is what a run of every line gives, and a run can fail."""

from __future__ import annotations

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
    backend = make_support.backends()[name]
    assert not [str(case.scheme) for case in CASES if not make_support.works(backend, case.scheme)]


def test_a_wrong_or_missing_operation_shows():
    scheme = qn.PRESETS["int8"]

    def refuse(*_):
        raise qn.UnsupportedSchemeError("no")

    def wrong(words, plan, params, out):
        reference.dequantize(words, plan, params, out)
        out += np.float32(1)

    right = reference.quantize
    assert make_support.works(SimpleNamespace(**vars(reference)), scheme)
    for quantize, dequantize in ((refuse, reference.dequantize), (right, refuse), (right, wrong)):
        backend = SimpleNamespace(quantize=quantize, dequantize=dequantize)
        assert not make_support.works(backend, scheme)


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
