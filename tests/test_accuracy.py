"""The measurements of the page on accuracy: what they are, and that the page has them."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser

import make_accuracy
import numpy as np
import pytest

import oracle
import qnumba as qn
from qnumba import accuracy
from qnumba.formats import SCALES, TWO_LEVEL_SCALES


@pytest.fixture(scope="module")
def grid():
    return accuracy.measure_grid()


def find(rows, **wanted):
    found = [row for row in rows if all(getattr(row, k) == v for k, v in wanted.items())]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("scheme", ["int8", "Q4F block=16:BF16", "nvfp4", "mxfp8", "U4 affine"])
def test_the_error_is_that_of_the_definition(scheme):
    x = accuracy.weights(0.1)
    known = qn.Scheme.parse(scheme)
    found = oracle.quantize(x, known)
    lost = oracle.decode(found.codes, known, found, np.float64) - x.astype(np.float64)
    expected = np.sqrt((lost**2).sum() / (x.astype(np.float64) ** 2).sum())
    assert accuracy.relative_error(x, scheme) == pytest.approx(expected, rel=1e-12)


def test_errors_of_extreme_arrays():
    assert accuracy.relative_error(np.zeros(4), "int8") == 0
    assert accuracy.relative_error(np.zeros(0), "int8") == 0
    huge = np.array([1e300, -1e300, 3e299])
    # the largest scale is float32's: these are clipped, and nothing overflows
    assert accuracy.relative_error(huge, "int8") == pytest.approx(1)
    assert accuracy.relative_error([1, 2, 3], "int8", rounding="away") < 0.01


def test_the_grid_is_complete(grid):
    levels = 3 * len(SCALES) + 2 * len(TWO_LEVEL_SCALES)
    assert len(grid) == len(accuracy.SPREADS) * len(accuracy.SYMMETRIC) * levels
    assert len({(row.data, row.scheme) for row in grid}) == len(grid)
    assert {row.scheme.scale_dtype for row in grid} == set(SCALES)


def test_the_weights_are_the_same_draws_of_every_spread():
    one = accuracy.weights().astype(np.float64)
    assert one.shape == (64, 64)
    assert abs(one.std() - 1) < 0.05
    for spread in accuracy.SPREADS:
        np.testing.assert_allclose(accuracy.weights(spread), one * spread, rtol=1e-6)


def test_bits_and_errors_are_of_a_size_that_makes_sense(grid):
    for row in grid:
        assert row.bits >= qn.formats.VALUES[row.scheme.value].bits
        assert 0 < row.error <= 1
    for data in {row.data for row in grid}:
        for value in accuracy.SYMMETRIC:
            error = {row.group: row.error for row in grid if row.data == data and row.name == value}
            assert error["block 16, F32"] < error["block 32, F32"] < error["tensor, F32"]


def test_two_levels_do_not_depend_on_the_spread(grid):
    for value in accuracy.SYMMETRIC:
        errors = [
            row.error for row in grid if row.name == value and row.group == "two-level 16, UE4M3"
        ]
        assert max(errors) / min(errors) < 1.01


def test_one_level_of_narrow_scales_does(grid):
    wide, narrow = (
        find(grid, data=f"normal, spread {spread}", name="Q8S", group="block 16, UE4M3").error
        for spread in ("1", "0.02")
    )
    assert narrow > 5 * wide


def test_presets_are_measured_with_every_rule_they_have():
    rows = accuracy.measure_presets()
    assert {row.name for row in rows} == set(qn.PRESETS)
    rules = {name: [row.group for row in rows if row.name == name] for name in qn.PRESETS}
    assert set(rules["mxfp4"]) == {"up", "nearest", "floor", "even"}
    assert set(rules["int8"]) == {"up", "nearest"}
    x = accuracy.arrays()["real weights"]
    found = find(rows, data="real weights", name="mxfp4", group="floor")
    assert found.error == accuracy.relative_error(x, "mxfp4", scale_rounding="floor")
    assert found.bits == qn.quantize(x, "mxfp4").bits_per_value


def test_tables():
    rows = [row for row in accuracy.measure_grid(["Q8S", "Q4S"]) if row.data.endswith(" 1")]
    head, *lines = accuracy.pivot(rows, "name")
    assert head == ["scales", "bits of scales", "Q8S", "Q4S"]
    assert len(lines) == 19
    assert lines[0][:2] == ["tensor, F32", "0.00781"]  # 32 bits for 4096 values
    assert lines[5][:2] == ["block 16, F32", "2"]
    assert all(len(line) == len(head) for line in lines)


def test_the_command(tmp_path):
    parser = ArgumentParser()
    accuracy.add_arguments(parser)
    picture = tmp_path / "a.svg"
    result = accuracy.run_accuracy(parser.parse_args(["--plot", str(picture)]))
    assert picture.stat().st_size > 0
    text = accuracy.show_accuracy(json.loads(json.dumps(result)))
    assert text.startswith("normal, spread 1:")
    assert "presets:" in text
    assert max(map(len, text.splitlines())) < 120


def test_the_chart_needs_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "qnumba\[plot\]"'):
        accuracy.plot("a.svg", [])


def test_the_page_is_what_the_command_writes():
    text = make_accuracy.PAGE.read_text(encoding="utf-8")
    assert make_accuracy.filled(text) == text, "run: python docs/make_accuracy.py"


def test_the_chart_is_there_and_the_same_each_time(tmp_path, grid):
    assert make_accuracy.CHART.stat().st_size > 0
    drawn = [tmp_path / name for name in ("a.svg", "b.svg")]
    for path in drawn:
        accuracy.plot(path, grid)
    assert drawn[0].read_bytes() == drawn[1].read_bytes()
