"""burn's own quantizations, bit for bit: codes, scales, record bytes and decoded numbers.

burn-ndarray rounds half away from zero; the model of its GPU kernel rounds half to even.
burn-flex multiplies by a reciprocal and is not matched.
"""

import numpy as np
import pytest

import oracle
import qnumba as qn
from qnumba.errors import DataError, SchemeError
from qnumba.formats import STORES
from qnumba.layout import plan
from qnumba.scheme import Scheme
from support import (
    STORE_NAMES,
    Params,
    assert_same_bits,
    calibrate_on,
    dequantize_on,
    f32,
    golden,
    golden_scheme,
    quantize_on,
)

ROWS = golden("quantize")
BY_CASE = {row["case"]: row for row in ROWS}
MODEL = golden("cubecl_model")
IDS = [f"{row['case']}-{row['scheme']['value']}-{row['input']}" for row in ROWS]


def grid_scales(row, key="scales"):
    scheme = golden_scheme(row["scheme"])
    return f32(row["ndarray"][key]).reshape(plan(scheme, tuple(row["shape"])).grid)


def global_scale(row):
    pattern = row["ndarray"]["global"]
    return None if pattern is None else f32([pattern])[0]


def array(row):
    return f32(row["x"]).reshape(row["shape"])


def test_all_rows_are_here():
    assert len(ROWS) == 169
    assert len(MODEL) == 169
    assert {row["case"] for row in MODEL} == set(BY_CASE)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_quantize_on_a_backend(backend, row):
    scheme, x = golden_scheme(row["scheme"]), array(row)
    method = row["calibration"].lower()
    expected = np.array(row["ndarray"]["q"], np.int8).reshape(x.shape)

    made = quantize_on(backend, x, scheme, rounding="away", method=method)
    assert not made.nonfinite
    assert_same_bits(made.params.scales, grid_scales(row), "scales")
    assert_same_bits(made.codes, expected, "codes", given=x)
    if global_scale(row) is not None:
        assert_same_bits(made.params.global_scale, global_scale(row), "global scale")

    calibrated, _ = calibrate_on(backend, x, scheme, method=method)
    assert_same_bits(calibrated.scales, grid_scales(row), "calibrated scales")

    params = Params(grid_scales(row), global_scale(row), None)
    explicit = quantize_on(backend, x, scheme, params, rounding="away")
    assert_same_bits(explicit.codes, expected, "codes with explicit parameters", given=x)
    decoded = dequantize_on(backend, made.words, scheme, x.shape, params)
    assert_same_bits(decoded, f32(row["ndarray"]["dequant"]).reshape(x.shape), "decoded")


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_quantize_in_public(row):
    scheme, x = golden_scheme(row["scheme"]), array(row)
    method, expected = row["calibration"].lower(), row["ndarray"]
    params = qn.calibrate(x, scheme, method=method)
    assert_same_bits(params.scales, grid_scales(row), "scales")
    for q in (
        qn.quantize(x, scheme, params=params, rounding="away"),
        qn.quantize(x, scheme, method=method, rounding="away"),
    ):
        assert_same_bits(q.codes(), np.array(expected["q"], np.int8).reshape(x.shape), "codes")
        assert_same_bits(q.scales, grid_scales(row), "scales")
        assert q.to_record() == bytes.fromhex(expected["bytes"])
        decoded = f32(expected["dequant"]).reshape(x.shape)
        assert_same_bits(q.dequantize(), decoded, "decoded")
        back = qn.QArray.from_record(bytes.fromhex(expected["bytes"]), scheme, x.shape)
        assert back == q


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_raw_scales(row, reference):
    """F32 scales are stored as they are, so they show the raw scale of any scheme.

    burn's two-level raw scales are those after division by the global scale.
    """
    if row["global_raw"] is not None:
        assert golden_scheme(row["scheme"]).two_level
        return
    changes = {"block_scale": "F32"} if row["scheme"]["block"] else {"tensor_scale": "F32"}
    scheme = golden_scheme(row["scheme"], **changes)
    params, _ = calibrate_on(reference, array(row), scheme, method=row["calibration"].lower())
    assert_same_bits(params.scales.ravel(), f32(row["scales_raw"]), "raw scales")


def test_the_gpu_rule(backend):
    """The model of the GPU kernel: half to even. Null is 0/0 there; here a zero scale gives 0."""
    compared = zero_scales = words = 0
    for row in MODEL:
        source = BY_CASE[row["case"]]
        scheme, x = golden_scheme(source["scheme"]), array(source)
        made = quantize_on(backend, x, scheme, method=source["calibration"].lower())
        codes = made.codes.ravel().tolist()
        for code, expected in zip(codes, row["q"], strict=True):
            assert code == (0 if expected is None else expected), (row["case"], codes, row["q"])
        zero_scales += row["q"].count(None)
        compared += len(codes)
        if "packed_u32" in row:
            packed = golden_scheme(source["scheme"], store="packed_u32")
            made = quantize_on(backend, x, packed, method=source["calibration"].lower())
            assert made.words.ravel().tolist() == row["packed_u32"], row["case"]
            words += made.words.size
    assert (compared, zero_scales, words) == (12_848, 992, 1_862)


def test_special_numbers_and_scales(backend):
    """Ties, halves, huge and subnormal numbers against seven scales.

    A scale of 0: burn-ndarray computes as if it were 0.1; here every code is 0.
    """
    special = golden("quantize_special")
    x = f32(special["x"])
    zero_scales = 0
    for row in special["explicit_scale"]:
        scheme = Scheme(row["value"])
        params = Params(f32([row["scale"]])[0].reshape(()))
        made = quantize_on(backend, x, scheme, params, rounding="away", nonfinite="clip")
        expected = row["ndarray_q"]
        if row["scale"] == 0:
            zero_scales += 1
            expected = [0] * len(expected)
        else:
            assert row["scale"] == row["ndarray_effective_scale"]
        assert_same_bits(made.codes, np.array(expected, np.int8), str(row), given=x)
        assert made.nonfinite
    assert (len(special["explicit_scale"]), zero_scales) == (42, 6)


def test_special_non_finite(backend):
    """NaN and infinity in the data: burn-ndarray panics; here they raise or are clipped.

    Under "clip" the range looks at finite numbers only. burn-flex lets infinity into it.
    """
    expected = [([0, 64, -127, 32], 2.0), ([127, 64, -127, 32], 2.0), ([-127, 0, 127, 0], 3.0)]
    expected.append(([0, 0, 0, 0], 0.0))
    rows = golden("quantize_special")["non_finite"]
    assert len(rows) == len(expected)
    for row, (codes, amax) in zip(rows, expected, strict=True):
        x = f32(row["x"])
        assert row["ndarray"].startswith("panics")
        with pytest.raises(DataError, match="index 0"):
            qn.quantize(x, "Q8S")
        made = quantize_on(backend, x, Scheme("Q8S"), rounding="away", nonfinite="clip")
        assert made.codes.tolist() == codes
        assert made.params.scales == np.float32(amax) / np.float32(127)


def test_special_minifloats(backend):
    """burn-flex puts minifloats on the integer grid; here they are encoded as minifloats."""
    rows = golden("quantize_special")["flex_minifloat_values"]
    assert len(rows) == 6
    for row in rows:
        if row["mode"] == "Lookup":  # no table in burn; here lookup takes one, of integers only
            with pytest.raises(SchemeError, match="index"):
                Scheme(row["value"], mode="lookup", table="nf4")
            continue
        x = f32(row["x"])
        made = quantize_on(backend, x, Scheme(row["value"]))
        assert_same_bits(made.params.scales, f32([row["scale"]]).reshape(()), "scale")
        decoded = dequantize_on(backend, made.words, Scheme(row["value"]), x.shape, made.params)
        numbers = oracle.minifloat_numbers(row["value"]).astype(np.float32)
        reachable = numbers[np.isfinite(numbers)] * made.params.scales
        expected = reachable[np.abs(x[:, None] - reachable).argmin(axis=1)]
        assert_same_bits(np.abs(decoded - x), np.abs(expected - x), "errors", given=x)


TWO_LEVEL = golden("two_level")


@pytest.mark.parametrize("row", TWO_LEVEL, ids=lambda row: f"{row['value']}-{row['block_dtype']}")
def test_two_level_normalisation(backend, row):
    """Ranges of each block as an array of blocks of two: its smallest and its largest number.

    The largest magnitude is what calibration sees, so (min, max) pairs reproduce burn's ranges.
    """
    x = np.stack([f32(row["min"]), f32(row["max"])], axis=1)
    scheme = Scheme(
        row["value"], block=2, block_scale=row["block_dtype"], tensor_scale="F32", store="native"
    )
    made, _ = calibrate_on(backend, x, scheme)
    assert_same_bits(made.global_scale, f32([row["global"]])[0], "global scale")
    assert_same_bits(made.scales.ravel(), f32(row["stored_scales"]), "stored scales")
    q = qn.quantize(x, scheme)
    scale_bytes = bytes.fromhex(row["encoded"])
    assert q.to_record()[x.size : -4] == scale_bytes


def test_two_level_rows():
    assert len(TWO_LEVEL) == 43
    assert sum(len(row["min"]) for row in TWO_LEVEL) == sum(len(r["scales"]) for r in TWO_LEVEL)


def test_stores_of_burn_are_the_stores_here():
    assert {row["scheme"]["store"] for row in ROWS} == {"Native"}
    assert set(STORE_NAMES.values()) <= set(STORES)
