"""Every float16 and every bfloat16 pattern, through every value type, at several scales.

The expected codes come from exact quotients: Fraction where it is a handful of numbers, float64
where a quotient of float32 numbers is rounded to float32 by NumPy. Small enough to be run in
whole; with NUMBA_DISABLE_JIT=1 a sample of patterns is run instead.
"""

import os
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import oracle
from qnumba.formats import VALUES
from qnumba.scheme import Scheme
from support import Params, assert_same_bits, dequantize_on, quantize_on

STEP = 97 if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0" else 1
PATTERNS = np.arange(0, 2**16, STEP, dtype=np.uint16)
INPUTS = {"float16": PATTERNS.view(np.float16), "bfloat16": PATTERNS.view(ml_dtypes.bfloat16)}
SCALES = [1.0, 0.1, 3 * 2.0**-20, 2.0**-127, 2.0**120]
TABLE = "nf4"


def scheme_of(value):
    mode = "affine" if value.startswith("U") else "symmetric"
    return Scheme(value, mode=mode)


def params_of(scheme, scale, zero=None):
    zero = (0 if zero is None else zero) if scheme.mode == "affine" else None
    zero = None if zero is None else np.array(zero, np.int32)
    return Params(np.array(scale, np.float32), None, zero)


@pytest.mark.parametrize("dtype", INPUTS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("value", VALUES)
def test_every_pattern(backend, value, scale, dtype):
    x, scheme = INPUTS[dtype], scheme_of(value)
    for rounding in ("even", "away") if value not in oracle.MINIFLOATS else ("even",):
        for zero in (0, 2) if scheme.mode == "affine" else (None,):
            params = params_of(scheme, scale, zero)
            options = {"rounding": rounding, "nonfinite": "clip"}
            made = quantize_on(backend, x, scheme, params, **options)
            expected = oracle.quantize(x, scheme, params, **options)
            assert_same_bits(made.codes, expected.codes, f"{value} {scale} {rounding}", given=x)
            assert made.nonfinite
    if value in {"E4M3", "E5M2"}:
        made = quantize_on(backend, x, scheme, params, nonfinite="keep")
        expected = oracle.quantize(x, scheme, params, nonfinite="keep")
        assert_same_bits(made.codes, expected.codes, f"{value} {scale} kept", given=x)


@pytest.mark.parametrize("dtype", INPUTS)
def test_every_pattern_by_table(backend, dtype):
    x, scheme = INPUTS[dtype], Scheme("U4", mode="lookup", table=TABLE)
    for scale in SCALES:
        params = params_of(scheme, scale)
        made = quantize_on(backend, x, scheme, params, nonfinite="clip")
        expected = oracle.quantize(x, scheme, params, nonfinite="clip")
        assert_same_bits(made.codes, expected.codes, f"table {scale}", given=x)


@pytest.mark.parametrize("dtype", INPUTS)
def test_every_pattern_as_a_scale(backend, dtype):
    """Blocks of one: every pattern is a range, rounded to every scale dtype by every rule."""
    x = np.abs(INPUTS[dtype])
    for scale_dtype in ("F32", "F16", "BF16", "UE8M0", "UE4M3"):
        for value in ("Q2S", "E4M3", "E2M1"):
            scheme = Scheme(value, block=1, block_scale=scale_dtype, store="native")
            rules = ["up", "nearest"]
            rules += ["floor", "even"] * (scale_dtype == "UE8M0" and value != "Q2S")
            for rule in rules:
                made = quantize_on(backend, x, scheme, scale_rounding=rule, nonfinite="clip")
                expected = expected_scales(x, scheme, rule)
                assert_same_bits(made.params.scales, expected, f"{scheme} {rule}", given=x)


def expected_scales(x, scheme, rule):
    """Return the stored scale of every |x|, found in one search of the dtype's numbers."""
    wide = x.astype(np.float32)
    amax = np.where(np.isfinite(wide), wide, np.float32(0))
    raw = amax / np.float32(oracle.half_range(scheme))
    if rule in {"floor", "even"}:
        unique, inverse = np.unique(amax, return_inverse=True)
        stored = [oracle.microscaling_scale(one, scheme.value, rule) for one in unique]
        return np.array(stored, np.float32)[inverse]
    if scheme.block_scale == "F32":
        return raw
    grid = oracle.scale_numbers(scheme.block_scale)
    numbers = raw.astype(np.float64)
    if rule == "up":
        found = np.minimum(np.searchsorted(grid, numbers, side="left"), grid.size - 1)
    else:
        found = oracle.nearest_even(grid, numbers)
    return grid[found].astype(np.float32)


@pytest.mark.parametrize("value", ["E4M3", "E5M2", "E2M1"])
def test_every_float16_against_fractions(backend, value):
    """The slowest oracle of all: nearest by exact distance, ties to the even code."""
    x = INPUTS["float16"]
    x = x[np.isfinite(x)][:: 7 * 11]
    numbers = oracle.minifloat_numbers(value)[: oracle.SIGN[value]]
    grid = [Fraction(float(number)) for number in numbers if np.isfinite(number)]
    made = quantize_on(backend, x, Scheme(value), params_of(Scheme(value), 1))
    for number, code in zip(x, made.codes, strict=True):
        size = abs(Fraction(float(number)))
        distances = [abs(size - one) for one in grid]
        best = min(distances)
        nearest = [index for index, distance in enumerate(distances) if distance == best]
        expected = next((index for index in nearest if index % 2 == 0), nearest[0])
        assert code == expected + oracle.SIGN[value] * bool(np.signbit(number)), number


@pytest.mark.parametrize("value", VALUES)
def test_every_code_decodes_and_encodes_back(backend, value):
    """Codes that encoding can give come back from the numbers they stand for."""
    scheme = scheme_of(value).replace(store="native")
    codes = np.arange(2 ** VALUES[value].bits, dtype=np.uint8)
    if value.startswith("Q"):
        shift = 8 - VALUES[value].bits
        codes = (codes << shift).view(np.int8) >> shift
        codes = codes[codes >= VALUES[value].lo]
    for scale in (1.0, 0.1, 2.0**-100, 1e30):
        params = params_of(scheme, scale, zero=1)
        for dtype in (np.float32, np.float64):
            decoded = dequantize_on(backend, codes, scheme, codes.shape, params, dtype)
            assert_same_bits(decoded, oracle.decode(codes, scheme, params, dtype), value)
            usable = np.isfinite(decoded)
            made = quantize_on(backend, decoded[usable], scheme, params)
            assert_same_bits(made.codes, codes[usable], value, given=decoded[usable])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("value", ["E4M3", "E5M2", "Q8S"])
def test_every_code_decodes_to_narrow_floats(backend, value, dtype):
    """code * e is rounded to float32 and then once more, never twice elsewhere."""
    scheme = Scheme(value)
    codes = np.arange(256, dtype=np.uint8)
    codes = codes.view(np.int8) if value == "Q8S" else codes
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    for scale in (1.0, 0.1, 2.0**-20, 2.0**-130, 1e3, 1e36):
        params = params_of(scheme, scale)
        decoded = dequantize_on(backend, codes, scheme, codes.shape, params, kind)
        assert_same_bits(decoded, oracle.decode(codes, scheme, params, kind), f"{value} {scale}")
