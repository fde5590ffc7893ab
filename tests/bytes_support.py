"""Quantized arrays to turn into bytes: random codes and parameters of any scheme."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from qnumba import reference
from qnumba.layout import plan
from qnumba.params import Params
from qnumba.scheme import PRESETS
from qnumba.serialize import decode_scales, to_bytes
from support import assert_same_bits, code_dtype, pack_on

if TYPE_CHECKING:
    from qnumba.scheme import Scheme

SHAPES = ((3, 33), (2, 3, 40), (130,), (0, 5), ())
PAIRS = [
    pytest.param(scheme, shape, id=f"{name}-{shape}")
    for (name, scheme), shape in itertools.product(PRESETS.items(), SHAPES)
    if len(scheme.block or ()) <= len(shape)
]


def random_parts(scheme: Scheme, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Return a plan, words of random codes, and random parameters that the scheme can hold."""
    rng = np.random.default_rng(seed)
    layout = plan(scheme, shape)
    low = -(2 ** (layout.value.bits - 1)) if code_dtype(scheme) is np.int8 else 0
    codes = rng.integers(low, low + 2**layout.value.bits, shape).astype(code_dtype(scheme))
    numbers = decode_scales(bytes(range(1, 0x7F)), "UE4M3")
    if scheme.scale_dtype == "UE8M0":
        numbers = np.float32(2.0) ** rng.integers(-127, 100, 64).astype(np.float32)
    points = rng.integers(layout.value.lo, layout.value.hi + 1, layout.grid)
    params = Params(
        scales=np.array(rng.choice(numbers, layout.grid), np.float32),
        global_scale=np.float32(0.1) if scheme.two_level else None,
        zero_points=np.array(points, np.int32) if scheme.mode == "affine" else None,
    )
    return layout, pack_on(reference, codes, scheme, shape), params


def container(scheme: Scheme, shape: tuple[int, ...], seed: int = 0) -> bytes:
    """Return a container of random codes and parameters."""
    layout, words, params = random_parts(scheme, shape, seed)
    return to_bytes(layout, words, params, "float32", options="o", writer="l")


def again(contents: Any) -> bytes:
    """Return the container of what was read from one."""
    layout = plan(contents.scheme, contents.shape)
    made = {"options": contents.options, "writer": contents.writer}
    return to_bytes(layout, contents.words, contents.params, contents.dtype, **made)


def assert_same_parts(words: Any, params: Params, expected_words: Any, expected: Params) -> None:
    """Fail unless words and parameters agree bit for bit."""
    assert_same_bits(words, expected_words, "words")
    assert_same_bits(params.scales, expected.scales, "scales")
    for name in ("global_scale", "zero_points"):
        assert (getattr(params, name) is None) == (getattr(expected, name) is None), name
        if getattr(expected, name) is not None:
            assert_same_bits(getattr(params, name), getattr(expected, name), name)
