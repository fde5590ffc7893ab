"""Schemes: normal form, text, equality, moves."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qnumba.errors import SchemeError
from qnumba.formats import VALUES
from qnumba.scheme import PRESETS, Scheme
from strategies import schemes

ANY_RANK = st.integers(0, 6).flatmap(lambda rank: schemes(rank))


@given(ANY_RANK)
def test_text_and_parse_are_inverse(scheme):
    assert Scheme.parse(str(scheme)) == scheme
    assert str(Scheme.parse(str(scheme))) == str(scheme)


@given(ANY_RANK)
def test_repr_makes_the_scheme(scheme):
    assert eval(repr(scheme), {"Scheme": Scheme}) == scheme  # noqa: S307 - our own text


@given(ANY_RANK)
def test_pickle_and_hash(scheme):
    other = pickle.loads(pickle.dumps(scheme))
    assert other == scheme
    assert hash(other) == hash(scheme)
    assert len({scheme, other}) == 1


@given(ANY_RANK, ANY_RANK)
def test_equal_schemes_have_equal_text(one, other):
    assert (one == other) == (str(one) == str(other))


@given(
    st.integers(1, 5).flatmap(lambda rank: st.tuples(schemes(rank), st.permutations(range(rank))))
)
def test_permuting_back_gives_the_scheme(case):
    scheme, axes = case
    back = np.argsort(axes).tolist()
    assert scheme.permute(axes).permute(back) == scheme


@given(
    st.integers(1, 5).flatmap(
        lambda rank: st.tuples(
            schemes(rank), st.just(rank), st.integers(0, rank - 1), st.integers(0, rank - 1)
        )
    )
)
def test_swapping_is_permuting_two(case):
    scheme, rank, first, second = case
    axes = list(range(rank))
    axes[first], axes[second] = axes[second], axes[first]
    assert scheme.swapaxes(rank, first, second) == scheme.permute(axes)
    assert scheme.swapaxes(rank, first, second).swapaxes(rank, first, second) == scheme


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        ("Q4S block=32:F16", Scheme("Q4S", block=32, block_scale="F16")),
        (
            "E2M1 block=16:UE4M3 tensor=F32",
            Scheme("E2M1", block=16, block_scale="UE4M3", tensor_scale="F32"),
        ),
        ("U8 affine", Scheme("U8", mode="affine")),
        (
            "Q8S block=2x16:F16 store=packed_u32",
            Scheme("Q8S", block=(2, 16), block_scale="F16", store="packed_u32"),
        ),
    ],
)
def test_texts_of_the_design(text, scheme):
    assert str(scheme) == text
    assert Scheme.parse(text) == scheme


def test_presets_of_the_design():
    assert list(PRESETS) == [
        "int8",
        "uint8",
        "int4",
        "ternary",
        "fp8",
        "fp8_block",
        "mxfp8",
        "mxfp4",
        "nvfp4",
        "nf4",
    ]
    for name, scheme in PRESETS.items():
        assert Scheme.parse(name) == scheme
        assert Scheme.parse(str(scheme)) == scheme
    assert PRESETS["uint8"].mode == "affine"
    assert PRESETS["fp8_block"].block == (128, 128)


def test_defaults():
    for name, row in VALUES.items():
        scheme = Scheme(name, mode="affine" if row.kind == "uint" else "symmetric")
        small = "packed_native" if name == "E2M1" else "packed_u32"
        assert scheme.store == ("native" if row.bits == 8 else small)
    assert Scheme("Q8S").scale_dtype == "F32"
    assert Scheme("Q8S", tensor_scale="F16").scale_dtype == "F16"


def test_what_means_the_same_is_equal():
    assert Scheme("Q8S") == Scheme("Q8S", tensor_scale="F32", store="native", mode="symmetric")
    assert Scheme("Q8S", block=32) == Scheme("Q8S", block=(1, 1, 32), block_scale="F32")
    assert Scheme("Q8S", block=1) == Scheme("Q8S", block=(1, 1, 1))
    assert Scheme("Q8S", block=[2, 16]) == Scheme("Q8S", block=(2, 16))
    assert Scheme("Q8S", block=np.int64(8)) == Scheme("Q8S", block=8)
    assert Scheme("U4", mode="lookup", table="nf4") == PRESETS["nf4"].replace(
        block=None, block_scale=None
    )
    assert Scheme("Q8S", block=(32, 1)) != Scheme("Q8S", block=32)
    assert Scheme("Q8S", block=1) != Scheme("Q8S")


def test_frozen():
    with pytest.raises(AttributeError):
        Scheme("Q8S").value = "Q4S"


@pytest.mark.parametrize(
    "text",
    ["", " ", "Q9S", "nvfp5", "Q8S block", "Q8S block=", "Q8S block=x", "Q8S block=2x", "Q8S what",
     "Q8S block=4 block=5", "Q8S tensor=F8", "Q8S store=", "Q8S pack_axis=-1", "Q8S block=4:",
     "Q8S block=4:F16:F16", "Q8S block=1e3", "nvfp4 affine", "Q8S pack_axis=1.5", "Q8S table=nf4",
     "U4 lookup", "U4 lookup table=1,2,3", "U4 lookup table=nan", 5, None, b"Q8S", "Q8S affine lookup"],
)  # fmt: skip
def test_bad_text(text):
    if text == "Q8S block=4:":
        assert Scheme.parse(text) == Scheme("Q8S", block=4)
        return
    with pytest.raises(SchemeError) as caught:
        Scheme.parse(text)
    assert caught.value.fix
    assert caught.value.field


@given(
    st.text(max_size=40) | st.text(alphabet="Q8SU4E2M1 block=tnsr:F163xlupfi_ka,.-", max_size=60)
)
def test_no_text_breaks_the_parser(text):
    try:
        scheme = Scheme.parse(text)
    except SchemeError:
        return
    assert Scheme.parse(str(scheme)) == scheme


@given(
    st.sampled_from(["value", "mode", "block", "block_scale", "tensor_scale", "store", "pack_axis"]),
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(),
        st.tuples(), st.lists(st.integers(-3, 2**66)), st.tuples(st.floats(), st.integers()),
        st.just(np.array([1, 2])), st.just(np.float32(3)), st.just([[1]]), st.just(object()),
    ),
)  # fmt: skip
def test_no_argument_breaks_the_constructor(field, given_value):
    arguments = {"value": "Q8S", field: given_value}
    try:
        scheme = Scheme(arguments.pop("value"), **arguments)
    except SchemeError as error:
        assert error.field
        assert error.fix
        assert error.nearest is None or isinstance(error.nearest, Scheme)
    else:
        assert Scheme.parse(str(scheme)) == scheme


@pytest.mark.parametrize("text", ["Q8S what" + "x" * 9999, "y" * 9999, "Q8S block=" + "z" * 9999])
def test_a_message_quotes_the_beginning_of_a_long_text(text):
    with pytest.raises(SchemeError) as caught:
        Scheme.parse(text)
    assert len(str(caught.value)) < 1000
    assert caught.value.fix in str(caught.value)


def test_a_preset_is_no_value_type():
    with pytest.raises(SchemeError, match="a preset, not a value type; use PRESETS") as caught:
        Scheme("int8")
    assert caught.value.nearest == PRESETS["int8"]


def test_a_table_has_no_negative_zero():
    """It equals 0.0, so two equal schemes would have two texts and two kernels."""
    tables = ((-1.0, zero, 1.0, 2.0) for zero in (0.0, -0.0))
    one, other = (Scheme("U2", mode="lookup", table=table) for table in tables)
    assert str(one) == str(other)


@pytest.mark.parametrize("pair", [(5, 0), ("a", 0), (None, 1), (0, -4), (True, 0)])
def test_bad_swaps(pair):
    with pytest.raises(SchemeError, match="name two that are there"):
        Scheme("Q8S").swapaxes(3, *pair)


@pytest.mark.parametrize(
    "axes", [[0, 0], [0, 2], [0], [], [1, 2, 0], None, "ab", {0, 1}, 5, [0.0, 1.0], [True, False]]
)
def test_bad_permutations(axes):
    scheme = Scheme("Q8S", block=(2, 16))
    if axes == [1, 2, 0]:
        assert scheme.permute(axes).block == (2, 16, 1)
        return
    with pytest.raises(SchemeError):
        scheme.permute(axes)


def test_a_move_that_needs_six_extents_is_refused():
    with pytest.raises(SchemeError, match="5 extents"):
        Scheme("Q8S", block=2).permute([5, 1, 2, 3, 4, 0])
    assert Scheme("Q8S", block=2).permute([0, 5, 1, 2, 3, 4]).block == (2, 1, 1, 1, 1)


def test_the_packed_axis_moves_with_its_axis():
    scheme = Scheme("Q4S", pack_axis=0)
    assert scheme.permute([2, 0, 1]).pack_axis == 2
    assert scheme.permute([0, 2, 1]).pack_axis == 1
    assert Scheme("Q8S", pack_axis=3) == Scheme("Q8S")  # native packs nothing
