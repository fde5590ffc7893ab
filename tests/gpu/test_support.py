"""The CUDA column of the support table is what the emulator gives, for every scheme of it."""

from __future__ import annotations

import make_support
import pytest

import cuda_support  # noqa: F401 - skips without numba-cuda
from emulator.device import emulated

pytestmark = pytest.mark.cuda_emulated
SCHEMES = make_support.schemes()
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_the_cuda_column_is_what_the_emulator_gives(part):
    assert len(SCHEMES) > 1000
    known = make_support.backends()["CUDA"]
    some = SCHEMES[part::PARTS]
    with emulated() as device:
        fails = make_support.failing(make_support.on_emulator(device), some)
    assert fails == [str(scheme) for scheme in some if not known(scheme)]


def test_the_page_says_how_cuda_was_run():
    assert f"CUDA was run on {make_support.EMULATED}." in make_support.counts()
