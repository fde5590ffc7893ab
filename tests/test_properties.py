"""What holds for every scheme, every array and every option: the whole scheme space, sampled.

``QNUMBA_EXAMPLES=5000 pytest tests/test_properties.py`` looks longer.
"""

from fractions import Fraction

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import oracle
import qnumba as qn
from strategies import DTYPES, LAYOUTS, SHAPES, arrays, cases, options_for, schemes
from support import (
    Params,
    assert_same_bits,
    calibrate_on,
    dequantize_on,
    quantize_on,
)


def assert_same_params(actual, expected, what):
    assert_same_bits(actual.scales, expected.scales, f"{what}: scales")
    assert (actual.global_scale is None) == (expected.global_scale is None)
    if expected.global_scale is not None:
        assert_same_bits(
            np.float32(actual.global_scale), np.float32(expected.global_scale), f"{what}: global"
        )
    assert (actual.zero_points is None) == (expected.zero_points is None)
    if expected.zero_points is not None:
        assert_same_bits(actual.zero_points, expected.zero_points, f"{what}: zero points")


@given(case=cases(nonfinite=True))
def test_backends_follow_the_contract(backend, case):
    """Every backend against the second route of oracle.py: ranges, codes, words, numbers."""
    scheme, x, options = case
    expected = oracle.quantize(x, scheme, **options)
    made = quantize_on(backend, x, scheme, **options)
    assert made.nonfinite == (not np.isfinite(x.astype(np.float64)).all())
    assert_same_params(made.params, expected, str(scheme))
    assert_same_bits(made.codes, expected.codes, str(scheme), given=x)
    assert_same_bits(made.words, oracle.pack(expected.codes, scheme), f"{scheme}: words")
    calibrated, seen = calibrate_on(backend, x, scheme, **options)
    assert_same_params(calibrated, expected, f"{scheme}: calibrate")
    assert seen == made.nonfinite
    for dtype in DTYPES.values():
        decoded = dequantize_on(backend, made.words, scheme, x.shape, made.params, dtype)
        assert_same_bits(decoded, oracle.decode(expected.codes, scheme, expected, dtype), "decoded")


@given(case=cases(nonfinite=True))
def test_reference_and_cpu_agree(reference, cpu, case):
    scheme, x, options = case
    expected = quantize_on(reference, x, scheme, **options)
    made = quantize_on(cpu, x, scheme, **options)
    assert made.nonfinite == expected.nonfinite
    assert_same_params(made.params, expected.params, str(scheme))
    assert_same_bits(made.codes, expected.codes, str(scheme), given=x)
    assert_same_bits(made.words, expected.words, f"{scheme}: words")
    given_params = quantize_on(cpu, x, scheme, expected.params, **options)
    assert_same_bits(given_params.words, expected.words, f"{scheme}: words, parameters given")
    for dtype in DTYPES.values():
        decoded = [
            dequantize_on(module, made.words, scheme, x.shape, made.params, dtype)
            for module in (cpu, reference)
        ]
        assert_same_bits(*decoded, f"{scheme} to {np.dtype(dtype)}")


LARGE = [(2**18 + 7,), (513, 517), (37, 70, 131), (2, 3, 5, 7, 1301)]


@settings(max_examples=max(settings.default.max_examples // 8, 1))
@given(
    case=st.sampled_from(LARGE).flatmap(
        lambda shape: schemes(len(shape)).flatmap(
            lambda scheme: st.tuples(
                st.just(scheme), arrays(shape, nonfinite=True), options_for(scheme)
            )
        )
    )
)
def test_reference_and_cpu_agree_on_arrays_that_threads_share(reference, cpu, case):
    scheme, x, options = case
    expected = quantize_on(reference, x, scheme, **options)
    made = quantize_on(cpu, x, scheme, **options)
    assert made.nonfinite == expected.nonfinite
    assert_same_params(made.params, expected.params, str(scheme))
    assert_same_bits(made.words, expected.words, f"{scheme}: words")
    decoded = [
        dequantize_on(module, made.words, scheme, x.shape, made.params, x.dtype)
        for module in (cpu, reference)
    ]
    assert_same_bits(*decoded, f"{scheme}: decoded")


@st.composite
def foreign_params(draw):
    """Return a case whose parameters were made from other data, or by hand."""
    scheme, x, options = draw(cases())
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    grid = oracle.grid_of(scheme, x.shape)
    sizes = 2.0 ** rng.uniform(-30, 30, grid) * (rng.random(grid) > 0.1)
    dtype = scheme.scale_dtype
    scales = [oracle.store_scale(size, dtype, "up") for size in np.ravel(sizes)]
    unit = np.float32(2.0 ** rng.uniform(-20, 20)) if scheme.two_level else None
    zero = None
    if scheme.mode == "affine":
        low, high = oracle.INTEGER_RANGES[scheme.value]
        zero = rng.integers(low, high + 1, grid).astype(np.int32)
        zero = np.asarray(zero, np.int32)
    return scheme, x, options, Params(np.array(scales, np.float32).reshape(grid), unit, zero)


@given(case=foreign_params())
def test_parameters_from_elsewhere(backend, case):
    scheme, x, options, params = case
    expected = oracle.quantize(x, scheme, params, **options)
    made = quantize_on(backend, x, scheme, params, **options)
    assert_same_bits(made.codes, expected.codes, str(scheme), given=x)
    decoded = dequantize_on(backend, made.words, scheme, x.shape, params)
    assert_same_bits(decoded, oracle.decode(expected.codes, scheme, params), f"{scheme}: decoded")


@given(case=cases(dtypes=["float32", "float64"]))
def test_encoding_a_decoded_array_changes_nothing(backend, case):
    """The same scales give the same codes, where no decoded number leaves the range of floats.

    A lookup table may hold entries that e makes equal; then the lower of them comes back.
    """
    scheme, x, options = case
    first = quantize_on(backend, x, scheme, **options)
    with np.errstate(over="ignore"):
        decoded = dequantize_on(
            backend, first.words, scheme, x.shape, first.params, oracle.compute_type(x.dtype)
        )
    assume(np.isfinite(decoded).all())
    tiny = 2.0**-126 if decoded.dtype == np.float32 else 2.0**-1022
    e = first.params.scales * np.float32(first.params.global_scale or 1)
    assume(not ((e > 0) & (e < tiny * 2**12)).any())  # products of subnormals are not exact
    if scheme.mode == "lookup":
        again = oracle.quantize(decoded, scheme, first.params, **options)
        numbers = oracle.decode(again.codes, scheme, first.params, decoded.dtype)
        assert np.array_equal(numbers, decoded)
        return
    second = quantize_on(backend, decoded, scheme, first.params, **options)
    assert_same_bits(second.codes, first.codes, str(scheme), given=decoded)


def half_steps(scheme, codes, zero):
    """Return half the distance to the farther neighbour of every code, in steps, and the ends."""
    if scheme.mode == "lookup":
        grid = np.array(scheme.table)
    elif scheme.value in oracle.MINIFLOATS:
        numbers = oracle.minifloat_numbers(scheme.value)
        grid = np.unique(numbers[np.isfinite(numbers)])
    else:
        low, high = oracle.INTEGER_RANGES[scheme.value]
        grid = np.arange(low, high + 1, dtype=float) - zero
    numbers = oracle.code_numbers(codes, scheme, np.float64, zero)
    gaps = np.diff(grid)
    place = np.searchsorted(grid, numbers)
    left = gaps[np.clip(place - 1, 0, gaps.size - 1)]
    right = gaps[np.clip(place, 0, gaps.size - 1)]
    return np.maximum(left, right) / 2, grid[0], grid[-1]


@given(case=cases(dtypes=["float32", "float64"]))
def test_the_error_is_within_half_a_step(backend, case):
    """Inside the range: half the gap between neighbouring numbers of the format, times e.

    The quotient x / e is rounded once and the product code * e is exact in float64, so half an
    ulp of the quotient comes on top.
    """
    scheme, x, options = case
    made = quantize_on(backend, x, scheme, **options)
    decoded = dequantize_on(backend, made.words, scheme, x.shape, made.params, np.float64)
    epsilon = np.finfo(oracle.compute_type(x.dtype)).eps
    for place, where in oracle.blocks_of(scheme, x.shape):
        e = made.params.scales[place]
        if made.params.global_scale is not None:
            e = np.float32(made.params.global_scale * e)
        if not e:
            continue
        zero = 0 if made.params.zero_points is None else int(made.params.zero_points[place])
        half, low, high = half_steps(scheme, made.codes[where], zero)
        with np.errstate(over="ignore"):
            t = x[where].astype(np.float64) / float(e)
        inside = (t >= low) & (t <= high)
        tiny = np.finfo(oracle.compute_type(x.dtype)).smallest_subnormal
        bound = (half + np.abs(t) * epsilon + tiny) * float(e) + 2.0**-1074
        error = np.abs(x[where].astype(np.float64) - decoded[where])
        assert (error <= bound)[inside].all(), (str(scheme), e, x[where], decoded[where])
        at_end = np.where(t < low, low, high) * float(e)
        assert (decoded[where] == at_end)[~inside].all()


@given(case=cases(dtypes=["float32", "float64"]))
def test_calibrated_scales_cover_the_data(backend, case):
    """Rounded up, no scale is too small for its block: every number is inside the range."""
    scheme, x, _ = case
    if scheme.mode != "symmetric" or scheme.two_level:
        return
    made = quantize_on(backend, x, scheme)
    limit = oracle.scale_numbers(scheme.scale_dtype)[-1] if scheme.scale_dtype != "F32" else np.inf
    half = Fraction(oracle.half_range(scheme))
    slack = 1 + Fraction(float(np.finfo(oracle.compute_type(x.dtype)).eps))
    tiny = Fraction(float(np.finfo(oracle.compute_type(x.dtype)).smallest_subnormal))
    for place, where in oracle.blocks_of(scheme, x.shape):
        scale = float(made.params.scales[place])
        if x[where].size and scale < min(limit, oracle.FLOAT32_MAX):
            amax = Fraction(float(np.abs(x[where]).max()))
            assert amax <= (Fraction(scale) * slack + tiny) * half


@given(case=cases(), layout=st.sampled_from(list(LAYOUTS)))
def test_the_layout_of_the_input_changes_nothing(case, layout):
    scheme, x, options = case
    assume(x.ndim or layout in {"read-only", "big-endian"})
    assume(layout != "big-endian" or x.dtype.kind == "f")  # NumPy has no big-endian bfloat16
    view = LAYOUTS[layout](x)
    assert qn.quantize(view, scheme, **options) == qn.quantize(x, scheme, **options)
    calibration = {name: options[name] for name in ("scale_rounding", "method", "nonfinite")}
    params = qn.calibrate(view, scheme, **calibration)
    assert params == qn.calibrate(x, scheme, **calibration)


@given(case=cases(nonfinite=True))
def test_records_and_containers_round_trip(case):
    scheme, x, options = case
    q = qn.quantize(x, scheme, **options)
    record = q.to_record()
    assert len(record) == q.nbytes
    assert qn.QArray.from_record(record, scheme, x.shape) == q
    assert qn.QArray.from_record(record, scheme, x.shape).to_record() == record
    back = qn.QArray.from_bytes(q.to_bytes())
    assert back == q
    assert back.source_dtype == x.dtype.name
    for dtype in (np.float32, np.float64):
        assert_same_bits(back.dequantize(dtype), q.dequantize(dtype), str(scheme))


@given(case=cases(nonfinite=True))
def test_the_front_door_adds_nothing(reference, case):
    """The public functions give what the definition gives."""
    scheme, x, options = case
    expected = quantize_on(reference, x, scheme, **options)
    q = qn.quantize(x, scheme, **options)
    assert_same_bits(q.codes(), expected.codes, str(scheme), given=x)
    assert_same_params(q.params, expected.params, str(scheme))
    again = qn.quantize(x, scheme, params=q.params, **options)
    assert again == q
    assert qn.quantize(x, scheme, out=again, **options) == q


@given(case=cases(dtypes=["float16", "bfloat16"]))
def test_narrow_inputs_are_widened_exactly(backend, case):
    scheme, x, options = case
    narrow = quantize_on(backend, x, scheme, **options)
    wide = quantize_on(backend, x.astype(np.float32), scheme, **options)
    assert_same_bits(narrow.words, wide.words, str(scheme))
    assert_same_params(narrow.params, wide.params, str(scheme))


@given(
    case=SHAPES.flatmap(
        lambda shape: schemes(len(shape)).flatmap(
            lambda scheme: st.tuples(
                st.just(scheme), arrays(shape, ["float32"]), options_for(scheme)
            )
        )
    )
)
def test_the_input_is_never_written(backend, case):
    scheme, x, options = case
    before = x.copy()
    x.flags.writeable = False
    made = quantize_on(backend, x, scheme, **options)
    words = made.words.copy()
    made.words.flags.writeable = False
    dequantize_on(backend, made.words, scheme, x.shape, made.params)
    assert_same_bits(x, before, "the input")
    assert_same_bits(made.words, words, "the words")
