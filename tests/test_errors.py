"""Every condition burn panics on, and what happens here: an error of the family, or an answer."""

import copy
import pickle

import numpy as np
import pytest

import qnumba as qn
from qnumba import errors
from qnumba.errors import (
    DataError,
    DecodeError,
    QuantizationError,
    QuantizedTypeError,
    SchemeError,
    UnsupportedSchemeError,
)
from support import golden

ROWS = golden("errors")
TWO = "Q8S block=4:UE4M3 tensor=F32"
EIGHT = np.arange(8, dtype=np.float32)


def params_of(scheme, **changes):
    made = qn.calibrate(EIGHT, scheme)
    fields = {"scales": made.scales, "global_scale": made.global_scale, "zero_points": None}
    return qn.QParams(**(fields | changes))


def record(scheme, x=EIGHT):
    return qn.quantize(x, scheme).to_record()


# burn's condition -> (the call, the error and the words in it). None: it works here.
REFUSED = {
    "QuantizedBytes::new: 3 values for shape [4]": (
        lambda: qn.QArray.from_record(bytes(3 + 4), "Q8S", (4,)),
        DecodeError,
        "expected 8 bytes",
    ),
    "QuantizedBytes::new: two-level scheme, global=None": (
        lambda: qn.quantize(EIGHT, TWO, params=params_of(TWO, global_scale=None)),
        SchemeError,
        "requires a per-tensor scale",
    ),
    "QuantizedBytes::new: one-level per-tensor scheme, global=Some": (
        lambda: qn.quantize(EIGHT, "Q8S", params=params_of("Q8S", global_scale=np.float32(1))),
        SchemeError,
        "does not take a per-tensor scale",
    ),
    "QuantizedBytes::new: one-level per-block scheme, global=Some": (
        lambda: qn.quantize(
            EIGHT, "Q8S block=4:F32", params=params_of("Q8S block=4:F32", global_scale=1.0)
        ),
        SchemeError,
        "does not take a per-tensor scale",
    ),
    "QuantizedBytes::new: two-level scheme whose tensor scale is F16": (
        lambda: qn.Scheme("Q8S", block=4, block_scale="UE4M3", tensor_scale="F16"),
        SchemeError,
        "stores its per-tensor scale as F32, got F16",
    ),
    "QuantizedBytes::new: per-tensor scheme with empty scales": (
        lambda: qn.quantize(EIGHT, "Q8S", params=qn.QParams(np.zeros(0, np.float32))),
        SchemeError,
        "shape",
    ),
    "QuantizedBytes::new: per-block scheme given too few scales (not checked)": (
        lambda: qn.quantize(EIGHT, "Q8S block=4:F32", params=qn.QParams(np.ones(1, np.float32))),
        SchemeError,
        r"\(1,\).*\(2,\)",
    ),
    "into_vec_i8: buffer shorter than the scales, Native": (
        lambda: qn.QArray.from_record(bytes(3), "Q8S", (4,)),
        DecodeError,
        "expected 8 bytes.*got 3",
    ),
    "into_vec_i8: buffer shorter than the scales, PackedU32 Q4S": (
        lambda: qn.QArray.from_record(bytes(3), "Q4S", (8,)),
        DecodeError,
        "expected 8 bytes.*got 3",
    ),
    "into_vec_i8: Q4S PackedU32 bytes that new() wrote as one byte per value": (
        lambda: qn.QArray.from_record(bytes(8 + 4), "Q4S", (8,)),
        DecodeError,
        "expected 8 bytes.*got 12",
    ),
    "compute_range AbsMean: two-level scheme": (
        lambda: qn.calibrate(EIGHT, TWO, method="absmean"),
        SchemeError,
        "AbsMean calibration has no two-level form",
    ),
    "compute_q_params: two-level with F32 block scales": (
        lambda: qn.Scheme("Q8S", block=4, block_scale="F32", tensor_scale="F32"),
        SchemeError,
        "block scales in F32 reach",
    ),
    "compute_q_params: two-level with BF16 block scales": (
        lambda: qn.Scheme("Q8S", block=4, block_scale="BF16", tensor_scale="F32"),
        SchemeError,
        "block scales in BF16 reach",
    ),
    "compute_q_params: two-level with UE8M0 block scales": (
        lambda: qn.Scheme("Q8S", block=4, block_scale="UE8M0", tensor_scale="F32"),
        SchemeError,
        "block scales in UE8M0 reach",
    ),
    "ndarray strategy: 3 block strategies for a [8] tensor with [4] blocks": (
        lambda: qn.quantize(EIGHT, "Q8S block=4:F32", params=qn.QParams(np.ones(3, np.float32))),
        SchemeError,
        r"\(3,\).*\(2,\)",
    ),
    "ndarray strategy: NaN input": (
        lambda: qn.quantize(np.array([1, np.nan], np.float32), "Q8S"),
        DataError,
        "1 NaN of 2 values, the first at index 1",
    ),
    "flex q_from_data: not a QFloat": (
        lambda: qn.dequantize(EIGHT),
        QuantizedTypeError,
        "quantize",
    ),
    "flex FlexQTensor::new: global missing for a two-level scheme": (
        lambda: qn.quantize(EIGHT, TWO, params=params_of(TWO, global_scale=None)),
        SchemeError,
        "requires a per-tensor scale",
    ),
    "flex FlexQTensor::new: f32 storage": (
        lambda: qn.QArray.from_record(EIGHT, "Q8S", (8,)),  # 32 bytes of floats
        DecodeError,
        "expected 12 bytes.*got 32",
    ),
    "flex FlexQTensor::new: no scales": (
        lambda: qn.QArray.from_record(bytes(8), "Q8S", (8,)),
        DecodeError,
        "expected 12 bytes.*got 8",
    ),
    "TensorMetadata::scheme on a float tensor (stub trait, same text)": (
        lambda: qn.scheme_of(EIGHT),
        QuantizedTypeError,
        "Quantization scheme is not valid for dtype float32",
    ),
    "BlockSize::new with 6 non-unit dims (debug_assert)": (
        lambda: qn.Scheme("Q8S", block=(2, 3, 4, 5, 6, 7)),
        SchemeError,
        "more than 5 extents",
    ),
    "round_up of a negative scale (debug_assert)": (
        lambda: qn.quantize(EIGHT, "Q8S", params=qn.QParams(np.array(-1, np.float32))),
        SchemeError,
        "negative",
    ),
}

# burn's condition -> a call that gives an answer here, and the codes it gives.
WORKS = {
    "QuantizedBytes::new: values are u8, not i8": (
        lambda: qn.quantize(
            np.arange(8, dtype=np.uint8),
            "U8 affine",
            params=qn.QParams(np.array(1, np.float32), None, np.array(0)),
        ),
        range(8),
    ),
    "QuantizedBytes::new: UE8M0 scales": (
        lambda: qn.quantize(EIGHT, "Q8S block=4:UE8M0"),
        [0, 32, 64, 96, 64, 80, 96, 112],
    ),
    "into_vec_i8: PackedU32(1)": (
        lambda: qn.QArray.from_record(
            record("Q8S store=packed_u32 pack_axis=1", EIGHT.reshape(4, 2)),
            "Q8S store=packed_u32 pack_axis=1",
            (4, 2),
        ),
        [0, 18, 36, 54, 73, 91, 109, 127],
    ),
    "into_vec_i8: PackedNative(0) E2M1": (
        lambda: qn.QArray.from_record(record("E2M1"), "E2M1", (8,)),
        [0, 2, 3, 5, 5, 6, 7, 7],
    ),
    "into_vec_i8: PackedU32(0) E4M3": (
        lambda: qn.QArray.from_record(
            record("E4M3 store=packed_u32"), "E4M3 store=packed_u32", (8,)
        ),
        [0, 0x68, 0x70, 0x74, 0x78, 0x7A, 0x7C, 0x7E],
    ),
    "compute_range MinMax: tensor [5] with block [4]": (
        lambda: qn.quantize(EIGHT[:5], "Q8S block=4:F32"),
        [0, 42, 85, 127, 127],
    ),
    "ndarray strategy: value beyond i8 (E4M3 range 448)": (
        lambda: qn.quantize(EIGHT, "E4M3"),
        [0, 0x68, 0x70, 0x74, 0x78, 0x7A, 0x7C, 0x7E],
    ),
    "flex quantize_dynamic: UE8M0 scale": (
        lambda: qn.quantize(EIGHT, "Q8S tensor=UE8M0"),
        [0, 16, 32, 48, 64, 80, 96, 112],
    ),
    "flex quantize_dynamic: [5] with block [4] (debug_assert, debug builds only)": (
        lambda: qn.quantize(EIGHT[:5], "Q8S block=4:F32"),
        [0, 42, 85, 127, 127],
    ),
    "flex quantize: i8 input tensor": (
        lambda: qn.quantize(EIGHT.astype(np.int8), "Q8S"),
        [0, 18, 36, 54, 73, 91, 109, 127],
    ),
    "ScaleDtype::f32_grid on F32": (
        lambda: qn.quantize(EIGHT, "Q8S tensor=F32"),
        [0, 18, 36, 54, 73, 91, 109, 127],
    ),
    "ScaleDtype::f32_grid on UE8M0": (
        lambda: qn.quantize(EIGHT, "Q8S tensor=UE8M0"),
        [0, 16, 32, 48, 64, 80, 96, 112],
    ),
}


def test_every_condition_of_burn_is_here():
    assert len(ROWS) == 35
    assert {row["case"] for row in ROWS} == REFUSED.keys() | WORKS.keys()
    assert not REFUSED.keys() & WORKS.keys()


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert isinstance(caught.value, QuantizationError)
    assert isinstance(caught.value, ValueError | TypeError)


@pytest.mark.parametrize("case", WORKS)
def test_works(case):
    call, codes = WORKS[case]
    assert call().codes().ravel().tolist() == list(codes)


def test_the_family():
    assert issubclass(SchemeError, QuantizationError)
    assert issubclass(SchemeError, ValueError)
    assert issubclass(UnsupportedSchemeError, SchemeError)
    assert issubclass(UnsupportedSchemeError, NotImplementedError)
    assert issubclass(QuantizedTypeError, QuantizationError)
    assert issubclass(QuantizedTypeError, TypeError)
    assert issubclass(DecodeError, QuantizationError)
    assert issubclass(DecodeError, ValueError)
    assert issubclass(DataError, QuantizationError)
    assert issubclass(DataError, ValueError)
    for name in vars(errors):
        if name.endswith("Error") and name[0].isupper():
            assert hasattr(qn, name)


def test_a_scheme_error_says_what_where_and_what_to_do():
    with pytest.raises(SchemeError) as caught:
        qn.Scheme("Q4Z")
    error = caught.value
    assert error.field == "value"
    assert error.value == "Q4Z"
    assert "Q4S" in error.fix
    assert "Q4Z" in str(error)
    assert isinstance(error.nearest, qn.Scheme)


@pytest.mark.parametrize(
    "copier", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_errors_survive_copying_and_pickling(copier):
    with pytest.raises(SchemeError) as caught:
        qn.Scheme("Q8S", block=0)
    other = copier(caught.value)
    assert type(other) is type(caught.value)
    assert str(other) == str(caught.value)
    for name in ("field", "value", "fix", "nearest"):
        assert getattr(other, name) == getattr(caught.value, name)


@pytest.mark.parametrize(
    "x",
    [
        np.ones(3, bool),
        np.ones(3, np.complex64),
        np.array([1, None], object),
        np.array(["a", "b"]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.array([1], "timedelta64[s]"),
        np.zeros(2, [("a", np.float32)]),
        np.ma.masked_array(np.ones(3), [0, 1, 0]),
        "text",
        None,
        {"a": 1},
        [[1.0], [1.0, 2.0]],
    ],
    ids=str,
)
def test_what_is_no_array_of_numbers(x):
    with pytest.raises(QuantizedTypeError) as caught:
        qn.quantize(x, "Q8S")
    message = str(caught.value)
    if isinstance(x, np.ma.MaskedArray):
        assert "filled" in message
    elif isinstance(x, np.ndarray):
        for name in ("float32", "float64", "float16", "bfloat16", "int8"):
            assert name in message


def test_quantizing_twice():
    q = qn.quantize(EIGHT, "Q8S")
    with pytest.raises(QuantizedTypeError, match="Should be float, got quantized"):
        qn.quantize(q, "Q8S")
    with pytest.raises(QuantizedTypeError, match="Should be float, got quantized"):
        q + 1


def test_a_message_names_every_fact_of_nan():
    x = np.ones((4, 6), np.float32)
    x[2, 3] = np.nan
    x[3, 0] = -np.inf
    with pytest.raises(DataError) as caught:
        qn.quantize(x, "Q8S block=2x2:F32")
    for words in ("1 NaN", "1 infinite", "24", "(2, 3)", "(1, 1)", "nonfinite"):
        assert words in str(caught.value)
