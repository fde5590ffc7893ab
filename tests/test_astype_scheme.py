"""Another scheme for the same numbers: every decoded bit stays, or it is refused and said why."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qnumba as qn
from qnumba.moves import InexactMoveError
from strategies import arrays, options_for, schemes, stores_of
from support import assert_same_bits

X = np.random.default_rng(1).normal(size=(6, 64)).astype(np.float32)
SHAPES = st.one_of(
    st.just(()), st.tuples(st.integers(0, 40)), st.tuples(st.integers(1, 5), st.integers(1, 20))
)


@st.composite
def quantized(draw):
    shape = draw(SHAPES)
    scheme = draw(schemes(len(shape)))
    numbers = draw(arrays(shape, nonfinite=scheme.value in {"E4M3", "E5M2"}))
    return qn.quantize(numbers, scheme, **draw(options_for(scheme)))


@given(quantized(), st.data())
def test_store_and_packed_axis_always_change(q, data):
    store = data.draw(st.sampled_from(stores_of(q.scheme.value)))
    pack_axis = data.draw(st.integers(0, max(q.ndim - 1, 0)))
    other = q.astype_scheme(store=store, pack_axis=pack_axis)
    assert other.scheme == q.scheme.replace(store=store, pack_axis=pack_axis)
    np.testing.assert_array_equal(other.codes(), q.codes())
    assert other.params == q.params
    assert_same_bits(other.dequantize(np.float64), q.dequantize(np.float64))
    assert other == qn.QArray.from_record(other.to_record(), other.scheme, other.shape)
    assert other.astype_scheme(q.scheme) == q
    assert not np.may_share_memory(other.words, q.words)


@given(quantized(), st.data())
def test_any_scheme_keeps_every_bit_or_is_refused(q, data):
    scheme = data.draw(schemes(q.ndim))
    try:
        other = q.astype_scheme(scheme)
    except InexactMoveError as error:
        assert "requantize()" in error.fix
        return
    if q.size:
        assert_same_bits(other.dequantize(), q.dequantize(), f"{q.scheme} -> {scheme}")
    assert other == qn.QArray.from_record(other.to_record(), scheme, q.shape)


LOSSLESS = [
    ("Q4S", "Q8S"),
    ("Q2S block=16:F16", "Q4F block=16:F16"),
    ("Q4S block=16:F16", "Q8S block=16:F32"),
    ("Q8S block=16:UE8M0", "Q8S block=16:BF16"),
    ("Q8S block=16:UE4M3", "Q8S block=16:F16"),
    ("Q8S block=32:F16", "Q8S block=8:F16"),
    ("Q8S block=2x32:F16", "Q8S block=32:F16"),
    ("Q8S", "Q8S block=32"),
    ("Q8S block=64", "Q8S block=4096"),
    ("Q8S block=6x64", "Q8S"),
    ("nvfp4", "E4M3 block=16:F32"),
    ("nvfp4", "E5M2 block=16:UE4M3 tensor=F32"),
    ("E2M1 block=16:UE4M3", "nvfp4"),
    ("mxfp4", "mxfp8 block=32:UE8M0"),
    ("Q4S block=16:F16", "E4M3 block=16:F16"),
    ("U4 affine", "U8 affine store=packed_u32"),
    ("Q4S affine", "Q4F affine"),
    ("nf4", "U4 lookup table=nf4 block=16:F32"),
]


@pytest.mark.parametrize(("scheme", "other"), LOSSLESS)
def test_a_wider_scheme_holds_every_number(scheme, other):
    other = "E4M3 block=32:UE8M0" if other.startswith("mxfp8 ") else other
    q = qn.quantize(X, scheme)
    wider = q.astype_scheme(other)
    assert wider.scheme == qn.Scheme.parse(other)
    assert_same_bits(wider.dequantize(np.float64), q.dequantize(np.float64))
    assert (wider.source_dtype, wider.options) == (q.source_dtype, q.options)


def test_what_the_numbers_allow():
    """A scheme that is narrower holds the numbers there are, if these happen to fit."""
    ones = qn.quantize(np.ones((4, 32), np.float32), "Q8S block=16:F32")
    even = ones.astype_scheme(qn.Scheme("Q8S"))
    assert even.scales.shape == ()
    small = qn.quantize(X, "Q8F", params=qn.QParams(np.float32(1.0)))
    assert_same_bits(small.astype_scheme("Q4F").dequantize(), small.dequantize())
    half = qn.quantize(X, "Q8S block=16:F32", params=qn.QParams(np.full((6, 4), 0.5, np.float32)))
    assert half.astype_scheme(block_scale="UE8M0").scheme.block_scale == "UE8M0"
    halves = qn.Scheme("U2", mode="lookup", table=(-1, -0.5, 0.5, 1))
    assert qn.quantize(X, halves).astype_scheme("E2M1").scheme.value == "E2M1"


REFUSED = {
    "a code too large": (
        lambda: qn.quantize(X, "Q8F", params=qn.QParams(np.float32(0.01))).astype_scheme("Q8S"),
        (
            "the scheme with value=Q8S cannot hold these numbers: it has no code for -128.0, which a "
            "code of the array stands for; requantize() to accept that numbers change"
        ),
    ),
    "a scale between": (
        lambda: qn.quantize(X, "Q8S").astype_scheme("Q8S tensor=F16"),
        "block_scale=F16 cannot hold these numbers: the scale 0.02",
    ),
    "no zero scale": (
        lambda: qn.quantize(0 * X, "Q8S").astype_scheme("Q8S tensor=UE8M0"),
        "the scale 0.0 is no UE8M0 number",
    ),
    "blocks that differ": (
        lambda: qn.quantize(X, "Q8S block=16").astype_scheme("Q8S block=32"),
        "block=(32,) cannot hold these numbers: blocks of (1, 32) would join blocks of (1, 16)",
    ),
    "blocks that overlap": (
        lambda: qn.quantize(X, "Q8S block=16").astype_scheme("Q8S block=24"),
        "would join blocks of (1, 16) that differ",
    ),
    "minus zero": (
        lambda: qn.quantize(np.float32([-0.0, 1]), "E2M1").astype_scheme("Q4S"),
        "it has no code for -0.0",
    ),
    "a number between integers": (
        lambda: qn.quantize(X, "E2M1").astype_scheme("Q8S"),
        "it has no code for 0.5",
    ),
    "more mantissa": (
        lambda: qn.quantize(X, "E4M3").astype_scheme("E5M2"),
        "value=E5M2 cannot hold",
    ),
    "another mode": (
        lambda: qn.quantize(X, "Q8S").astype_scheme("Q8S affine"),
        "symmetric codes and affine codes are not decoded the same way",
    ),
    "zero points": (
        lambda: qn.quantize(
            X + 5, "U8 affine", params=qn.QParams(np.float32(1), None, np.array(200))
        ).astype_scheme("U4 affine"),
        "zero points run from 200 to 200",
    ),
    "another table": (
        lambda: qn.quantize(X, "nf4").astype_scheme(table=np.linspace(-1, 1, 16)),
        "table=U4 cannot hold",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_that_would_change_are_named(name):
    call, message = REFUSED[name]
    with pytest.raises(InexactMoveError) as refused:
        call()
    assert message in str(refused.value)


def test_a_scheme_that_does_not_fit_is_refused():
    q = qn.quantize(X, "Q4S")
    with pytest.raises(qn.SchemeError, match="more extents than the array"):
        q.astype_scheme(block=(2, 3, 4))
    with pytest.raises(qn.SchemeError, match="doesn't support native packing"):
        q.astype_scheme(store="packed_native")
    with pytest.raises(TypeError, match="colour"):
        q.astype_scheme(colour="red")


def test_requantize_is_dequantize_and_quantize():
    q = qn.quantize(X.astype(ml_dtypes.bfloat16), "int8")
    again = q.requantize("int4", rounding="away", scale_rounding="nearest")
    wanted = qn.quantize(q.dequantize(), "int4", rounding="away", scale_rounding="nearest")
    assert again == wanted
    assert again.options == wanted.options
    assert again.source_dtype == "bfloat16"
    kept = qn.quantize(np.float32([np.nan, 1]), "E4M3", nonfinite="keep")
    with pytest.raises(qn.DataError, match="1 NaN of 2 values"):
        kept.requantize("int8")
    assert kept.requantize("int8", nonfinite="clip").codes().tolist() == [0, 127]
    with pytest.raises(qn.SchemeError, match="colour is no option; use rounding"):
        q.requantize("int4", colour="red")
    with pytest.raises(qn.SchemeError, match="is not a rounding rule"):
        q.requantize("int4", rounding="up")


def test_requantizing_decoded_numbers_with_the_same_scheme_keeps_the_codes():
    q = qn.quantize(X, "Q8S block=16:F16")
    np.testing.assert_array_equal(q.requantize(q.scheme).codes(), q.codes())
