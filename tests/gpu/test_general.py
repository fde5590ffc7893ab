"""The general kernels: every value type, scale dtype, store, level, rounding, at small sizes."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from cuda_support import DTYPES, Case, check, hard
from emulator.device import SM90, emulated
from qnumba.errors import SchemeError
from qnumba.fit_rules import OPTION_NAMES
from qnumba.formats import SCALES, STORES, VALUES
from qnumba.params import Options
from qnumba.scheme import Scheme
from qnumba.validate import require, require_options

pytestmark = pytest.mark.cuda_emulated
SHAPES = [(), (7,), (300,), (5, 33), (3, 4, 17), (2, 3, 4, 18), (2, 1, 3, 2, 9), (40, 30)]
BLOCKS = [
    None,
    1,
    2,
    7,
    16,
    32,
    (2, 3),
    (3, 1),
    (2, 2, 5),
    (2, 1, 4),
    (2, 2, 2, 3),
    (1, 2, 2, 2, 4),
]
BLOCKS += [(2, 1, 2, 1, 4)]
TABLES = {8: 256, 4: 16, 2: 4}


@pytest.fixture(scope="module")
def device():
    with emulated(SM90) as emulator:
        yield emulator


def schemes():
    """Yield every value type with every mode, scale dtype, level and store there is."""
    pick = random.Random(4)
    levels = [(None, None), *((None, scale) for scale in SCALES)]
    levels += [(scale, None) for scale in SCALES] + [("F16", "F32"), ("UE4M3", "F32")]
    modes = ("symmetric", "affine", "lookup")
    for value, mode, (block_scale, over), store in itertools.product(VALUES, modes, levels, STORES):
        block = pick.choice(BLOCKS[1:]) if block_scale else None
        table = np.sort(np.random.default_rng(1).standard_normal(TABLES[VALUES[value].bits]))
        try:
            scheme = Scheme(
                value,
                mode=mode,
                block=block,
                block_scale=block_scale,
                tensor_scale=over,
                store=store,
                pack_axis=pick.choice((0, 0, 1, 2)),
                table=table.tolist() if mode == "lookup" else None,
            )
        except SchemeError:
            continue
        yield scheme


def cases():
    """Yield a case for each scheme, options and sizes drawn once and for all."""
    pick = random.Random(5)
    for scheme in schemes():
        for _ in range(200):
            options = {name: pick.choice(allowed) for name, allowed in OPTION_NAMES.items()}
            shape, dtype = pick.choice(SHAPES), pick.choice(list(DTYPES))
            offsets = (pick.choice((1, 3)), pick.choice((0, 1, 2, 3)))
            try:
                require(scheme, shape, dtype)
                require_options(scheme, Options(**options))
            except SchemeError:
                continue
            decoded = pick.choice(list(DTYPES))
            yield Case(scheme, shape, dtype, decoded, offsets, None, options)
            break


CASES = list(cases())


@pytest.mark.parametrize("part", range(8))
def test_the_whole_table(device, part):
    """Odd addresses keep every case on the general kernels."""
    assert len(CASES) > 300
    for number, case in enumerate(CASES[part::8]):
        device.forget()
        check(device, case, hard(case.shape, number, case.dtype, special=number % 2 == 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_absmean_adds_in_the_order_of_the_contract(device, dtype):
    device.forget()
    for scheme, shape in ((Scheme("Q2S"), (70001,)), (Scheme("Q4S", block=600), (3, 700))):
        x = np.abs(hard(shape, 3, dtype, magnitude=-3))
        check(device, Case(scheme, shape, dtype, options={"method": "absmean"}), x)


def test_ranges_of_many_chunks(device):
    device.forget()
    for scheme in (Scheme("Q8S"), Scheme("U8", mode="affine"), Scheme("Q8F", block=(3, 70001))):
        x = hard((3, 70001), 3, "float64")
        check(device, Case(scheme, x.shape, "float64"), x)
