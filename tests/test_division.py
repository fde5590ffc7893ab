"""Ratios of values and scales, which kernels find without dividing: as a division rounds them."""

import numpy as np
import pytest

from qnumba import Scheme, cpu, reference
from qnumba.formats import thresholds
from qnumba.layout import plan
from qnumba.params import Params
from support import assert_same_bits, quantize_on

BLOCK, BLOCKS = 32, 4096
HALVES = np.arange(-130, 130) + 0.5
TABLE = np.sort(np.random.default_rng(5).standard_normal(16)).astype(np.float32)
NUMBERS = ",".join(str(float(number)) for number in TABLE)
# The ratios at which the codes of a value type change.
BORDERS = {
    "Q8S": HALVES,
    "Q4S": HALVES[np.abs(HALVES) < 9],
    "U8 affine": HALVES,
    "E4M3": np.arange(-40, 40) / 16 + 1 / 32,
    "E5M2": np.arange(-40, 40) / 8 + 1 / 16,
    "E2M1": np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]),
    f"U4 lookup table={NUMBERS}": thresholds(tuple(TABLE.tolist()), np.float32),
}
EXPONENTS = {
    "usual": (-30, 30),
    "tiny": (-149, -60),
    "huge": (60, 128),
    "any": (-149, 128),
}


def near(ratios, scales, random):
    """Return values whose ratio to the scales is a given one, or a few steps beside it."""
    with np.errstate(over="ignore", under="ignore"):
        x = (ratios * scales.astype(np.float64)).astype(np.float32)
    steps = random.integers(-2, 3, x.shape).astype(np.int32)
    beside = (x.view(np.int32) + steps).view(np.float32)
    return np.where(np.isfinite(beside), beside, x)


@pytest.mark.parametrize("exponents", EXPONENTS)
@pytest.mark.parametrize("scheme", BORDERS)
@pytest.mark.parametrize("block", [f"{BLOCK}", "32x1", "1"])
def test_ratios_beside_ties(scheme, exponents, block):
    random = np.random.default_rng(1)
    known = Scheme.parse(f"{scheme} block={block}:F32")
    shape = (BLOCKS, BLOCK) if block != "1" else (512, BLOCK)
    made = plan(known, shape)
    sizes = np.exp2(random.integers(*EXPONENTS[exponents], made.grid).astype(np.float64))
    scales = (sizes * (1 + random.random(made.grid))).astype(np.float32)
    scales = np.minimum(scales, np.finfo(np.float32).max)
    scales.reshape(-1)[::97] = 0
    points = random.integers(0, 256, made.grid, np.int32) if "affine" in scheme else None
    each = np.repeat(
        np.repeat(scales, shape[0] // scales.shape[0], 0), shape[1] // scales.shape[1], 1
    )
    x = near(random.choice(BORDERS[scheme], shape), each, random)
    params = Params(scales, None, points)
    one, other = (quantize_on(backend, x, known, params) for backend in (reference, cpu))
    assert_same_bits(other.words, one.words, given=x)


def test_a_ratio_that_is_a_tie_once_rounded():
    """Values x for which x / s is no tie and rounds to one, which no shortcut gets right by luck."""
    random = np.random.default_rng(2)
    scales = (1 + random.random(2**20)).astype(np.float32)
    ratio = random.choice(HALVES, scales.size)
    x = (ratio * scales.astype(np.float64)).astype(np.float32)
    is_made_a_tie = (x / scales == ratio) & (x.astype(np.float64) != ratio * scales)
    assert is_made_a_tie.sum() > 2**18
    x, scales = x[is_made_a_tie, None], scales[is_made_a_tie, None]
    known, params = Scheme.parse("Q8S block=1:F32"), Params(scales, None, None)
    for rounding in ("even", "away"):
        one, other = (
            quantize_on(backend, x, known, params, rounding=rounding)
            for backend in (reference, cpu)
        )
        assert_same_bits(other.words, one.words, given=x)
