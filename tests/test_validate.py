"""The validator: finds something exactly where quantize would refuse, and says what to do."""

import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qnumba as qn
from qnumba.errors import DataError, QuantizationError, SchemeError
from qnumba.formats import MODES, STORES, VALUES
from qnumba.formats import SCALES as SCALE_ROWS
from qnumba.scheme import PRESETS, Scheme
from qnumba.validate import validate
from strategies import DTYPES, SCALES, SHAPES, arrays, schemes

KIND = {name: row.kind for name, row in VALUES.items()}


def is_legal(value, mode, level, block_scale, tensor_scale, store):
    """Return what numerics.md allows, said once more and differently."""
    allowed = {"int": {"symmetric", "affine", "lookup"}, "uint": {"affine", "lookup"}}
    if mode not in allowed.get(KIND[value], {"symmetric"}):
        return False
    if store == "packed_native" and value != "E2M1":
        return False
    if store == "packed_u8" and VALUES[value].bits == 8:
        return False
    if level == "block" and tensor_scale is not None:
        return block_scale in {"F16", "UE4M3"} and tensor_scale == "F32" and mode != "affine"
    return level == "block" or block_scale is None


def every_combination():
    for value in VALUES:
        for mode in MODES:
            for level in ("tensor", "block"):
                for block_scale in (None, *SCALE_ROWS):
                    for tensor_scale in (None, *SCALE_ROWS):
                        for store in (None, *STORES):
                            yield value, mode, level, block_scale, tensor_scale, store


def test_every_combination_of_the_tables():
    """12 x 3 x 2 x 6 x 6 x 5 combinations: legal ones make a scheme, others say what to do."""
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    counts = {True: 0, False: 0}
    for case in every_combination():
        value, mode, level, block_scale, tensor_scale, store = case
        table = [float(i) for i in range(2 ** VALUES[value].bits)] if mode == "lookup" else None
        arguments = {
            "mode": mode,
            "block": 4 if level == "block" else None,
            "block_scale": block_scale,
            "tensor_scale": tensor_scale,
            "store": store,
            "table": table,
        }
        legal = is_legal(*case)
        counts[legal] += 1
        if legal:
            scheme = Scheme(value, **arguments)
            assert validate(scheme, shape=x.shape, dtype=x.dtype) == []
            if counts[True] % 10 == 0:
                qn.quantize(x, scheme).dequantize()
            continue
        with pytest.raises(SchemeError) as caught:
            Scheme(value, **arguments)
        error = caught.value
        assert error.field in {"mode", "store", "block_scale", "tensor_scale", "table"}, case
        assert error.fix, case
        assert error.fix in str(error)
        assert isinstance(error.nearest, Scheme), (case, str(error))
    assert sum(counts.values()) == 12 * 3 * 2 * 6 * 6 * 5
    assert counts[True] > 500


# field, arguments: the field the error must name
WRONG = [
    ("value", {"value": "q8s"}),
    ("value", {"value": None}),
    ("value", {"value": 8}),
    ("value", {"value": ["Q8S"]}),
    ("mode", {"mode": "asymmetric"}),
    ("mode", {"mode": None}),
    ("mode", {"value": "E4M3", "mode": "affine"}),
    ("mode", {"value": "E2M1", "mode": "lookup", "table": "nf4"}),
    ("mode", {"value": "U8"}),
    ("mode", {"mode": "affine", "block": 8, "block_scale": "F16", "tensor_scale": "F32"}),
    ("table", {"value": "U4", "mode": "lookup"}),
    ("table", {"value": "U4", "table": "nf4", "mode": "affine"}),
    ("table", {"value": "U4", "mode": "lookup", "table": "nf5"}),
    ("table", {"value": "U2", "mode": "lookup", "table": "nf4"}),
    ("table", {"value": "U2", "mode": "lookup", "table": (0.0, 1.0, 2.0)}),
    ("table", {"value": "U2", "mode": "lookup", "table": (3.0, 2.0, 1.0, 0.0)}),
    ("table", {"value": "U2", "mode": "lookup", "table": (0.0, 1.0, 2.0, np.nan)}),
    ("table", {"value": "U2", "mode": "lookup", "table": (0.0, 1.0, 2.0, np.inf)}),
    ("table", {"value": "U2", "mode": "lookup", "table": (0.0, 0.0, 0.0, 0.0)}),
    ("table", {"value": "U2", "mode": "lookup", "table": 5}),
    ("table", {"value": "U2", "mode": "lookup", "table": "0123"}),
    ("table", {"value": "U2", "mode": "lookup", "table": b"0123"}),
    ("table", {"value": "U2", "mode": "lookup", "table": ["0", "1", "2", "3"]}),
    ("table", {"value": "U2", "mode": "lookup", "table": (False, True, 2, 3)}),
    ("table", {"value": "U2", "mode": "lookup", "table": iter((0, 1, 2, 3))}),
    ("table", {"value": "U2", "mode": "lookup", "table": dict.fromkeys((0, 1, 2, 3))}),
    ("table", {"value": "U2", "mode": "lookup", "table": np.ma.masked_equal([0, 1, 2, 3], 2)}),
    ("table", {"value": "U2", "mode": "lookup", "table": np.ones((2, 2))}),
    ("table", {"value": "U2", "mode": "lookup", "table": np.arange(4) * 1j}),
    ("table", {"value": "U2", "mode": "lookup", "table": (0, 1, 2, 10**400)}),
    ("block", {"block": 0}),
    ("block", {"block": -1}),
    ("block", {"block": 2.5}),
    ("block", {"block": 32.0}),
    ("block", {"block": True}),
    ("block", {"block": 2**64}),
    ("block", {"block": 2**31}),
    ("block", {"block": "32"}),
    ("block", {"block": ()}),
    ("block", {"block": (32, 0)}),
    ("block", {"block": (32, None)}),
    ("block", {"block": (2, 2, 2, 2, 2, 2)}),
    ("block", {"block": {32}}),
    ("block_scale", {"block_scale": "F16"}),
    ("block_scale", {"block": 8, "block_scale": "F8"}),
    ("block_scale", {"block": 8, "block_scale": "F32", "tensor_scale": "F32"}),
    ("block_scale", {"block": 8, "block_scale": "BF16", "tensor_scale": "F32"}),
    ("block_scale", {"block": 8, "block_scale": "UE8M0", "tensor_scale": "F32"}),
    ("block_scale", {"block": 8, "tensor_scale": "F32"}),
    ("tensor_scale", {"tensor_scale": "f32"}),
    ("tensor_scale", {"block": 8, "block_scale": "F16", "tensor_scale": "F16"}),
    ("store", {"store": "packed_native"}),
    ("store", {"store": "packed_u8"}),
    ("store", {"store": "packed"}),
    ("pack_axis", {"pack_axis": -1, "store": "packed_u32"}),
    ("pack_axis", {"pack_axis": 0.0, "store": "packed_u32"}),
    ("pack_axis", {"pack_axis": True, "store": "packed_u32"}),
    ("pack_axis", {"pack_axis": None, "store": "packed_u32"}),
]


@pytest.mark.parametrize(("field", "arguments"), WRONG, ids=lambda part: str(part)[:60])
def test_wrong_arguments(field, arguments):
    arguments = {"value": "Q8S"} | arguments
    with pytest.raises(SchemeError) as caught:
        Scheme(arguments.pop("value"), **arguments)
    error = caught.value
    assert error.field == field
    assert error.fix
    assert len(str(error)) > len(error.fix)
    if error.nearest is not None:
        assert validate(error.nearest) == []


@pytest.mark.parametrize(("field", "arguments"), WRONG, ids=lambda part: str(part)[:60])
def test_every_wrong_argument_has_a_nearest_scheme(field, arguments):
    """What is no text at all is near no name."""
    far = field in {"value", "mode"} and not isinstance(arguments.get(field, ""), str)
    arguments = {"value": "Q8S"} | arguments
    with pytest.raises(SchemeError) as caught:
        Scheme(arguments.pop("value"), **arguments)
    assert isinstance(caught.value.nearest, type(None) if far else Scheme), field


def test_what_is_like_no_name_has_no_nearest_scheme():
    for name in ("", "something else entirely", "é" * 10**6):
        with pytest.raises(SchemeError) as caught:
            Scheme(name)
        assert caught.value.nearest is None
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("scheme", "shape", "field"),
    [
        (Scheme("Q8S", block=(2, 2)), (8,), "block"),
        (Scheme("Q8S", block=2), (), "block"),
        (Scheme("Q8S", block=(2, 1, 1)), (4, 4), "block"),
        (Scheme("Q4S", pack_axis=1), (8,), "pack_axis"),
        (Scheme("Q4S", pack_axis=1), (), "pack_axis"),
        (Scheme("Q4S", pack_axis=7), (2, 2, 2), "pack_axis"),
    ],
)
def test_schemes_against_shapes(scheme, shape, field):
    (finding,) = validate(scheme, shape=shape)
    assert finding.field == field
    assert finding.fix
    assert validate(finding.nearest, shape=shape) == []
    x = np.ones(shape, np.float32)
    with pytest.raises(SchemeError) as caught:
        qn.quantize(x, scheme)
    assert caught.value.field == field
    assert validate(scheme, shape=(4, 8, 8, 8, 8, 8, 8, 8)) == []


@pytest.mark.parametrize(
    "shape",
    [(-1, 4), (2.5,), "ab", (None,), 7, [[1]], {2, 3}, iter((2, 3)), b"ab", (True, 4), np.ones(2),
     (1,) * 70, (2**40, 2**40), (0, 2**70), np.array(3)],
    ids=str,
)  # fmt: skip
def test_shapes_that_are_none(shape):
    params = qn.QParams(np.ones(3, np.float32))
    for scheme in ("Q8S", "int4"):
        assert "shape" in [found.field for found in validate(scheme, shape=shape, params=params)]
    with pytest.raises(SchemeError):
        qn.QArray.from_record(bytes(4), "Q8S", shape)


def test_shapes_of_every_sequence():
    for shape in ([2, 3], np.array([2, 3]), range(2, 4), (np.int64(2), 3)):
        assert validate("Q8S", shape=shape) == []


@pytest.mark.parametrize(
    "dtype",
    [bool, np.complex64, object, "U4", "datetime64[s]", "V8", np, "nope", "", 5, np.ones(3)],
    ids=str,
)
def test_dtypes(dtype):
    (finding,) = validate("Q8S", dtype=dtype)
    assert finding.field == "dtype"
    for name in ("float32", "float64", "float16", "bfloat16"):
        assert name in finding.fix


@pytest.mark.parametrize("dtype", [*DTYPES, *DTYPES.values(), np.int8, "uint64", ">f4", "<i2"])
def test_good_dtypes(dtype):
    assert validate("Q8S", dtype=dtype) == []


OPTIONS = [
    ("Q8S", {"rounding": "up"}, "rounding"),
    ("Q8S", {"rounding": None}, "rounding"),
    ("Q8S", {"scale_rounding": "down"}, "scale_rounding"),
    ("Q8S", {"scale_rounding": "floor"}, "scale_rounding"),
    ("mxfp4", {"scale_rounding": "floor"}, None),
    ("mxfp8", {"scale_rounding": "even"}, None),
    ("Q8S tensor=UE8M0", {"scale_rounding": "floor"}, "scale_rounding"),
    ("nvfp4", {"scale_rounding": "floor"}, "scale_rounding"),
    ("E4M3", {"scale_rounding": "even"}, "scale_rounding"),
    ("Q8S", {"nonfinite": "ignore"}, "nonfinite"),
    ("Q8S", {"nonfinite": "keep"}, "nonfinite"),
    ("E2M1", {"nonfinite": "keep"}, "nonfinite"),
    ("nf4", {"nonfinite": "keep"}, "nonfinite"),
    ("E4M3", {"nonfinite": "keep"}, None),
    ("E5M2 block=4:UE8M0", {"nonfinite": "keep"}, None),
    ("Q8S", {"method": "mean"}, "method"),
    ("Q2S", {"method": "absmean"}, None),
    ("nvfp4", {"method": "absmean"}, "method"),
    ("uint8", {"method": "absmean"}, "method"),
]


@pytest.mark.parametrize(("scheme", "options", "field"), OPTIONS, ids=str)
def test_options_against_schemes(scheme, options, field):
    x = np.ones((2, 64), np.float32)
    findings = validate(scheme, **options)
    assert [finding.field for finding in findings] == ([] if field is None else [field])
    if field is None:
        qn.quantize(x, scheme, **options)
        return
    with pytest.raises(SchemeError) as caught:
        qn.quantize(x, scheme, **options)
    assert caught.value.field == field


def test_an_option_that_is_none():
    (finding,) = validate("Q8S", seed=1)
    assert finding.field == "options"


def test_options_are_never_compared_as_arrays():
    for name in ("rounding", "scale_rounding", "nonfinite", "method"):
        (finding,) = validate("Q8S", **{name: np.ones(3)})
        assert finding.field == name
        with pytest.raises(SchemeError):
            qn.calibrate(np.ones(3), "Q8S", method=np.ones(3))


@given(
    SHAPES.flatmap(
        lambda shape: st.tuples(
            st.integers(0, 5).flatmap(schemes),
            arrays(shape, ["float32"], nonfinite=True),
            st.fixed_dictionaries(
                {},
                optional={
                    "rounding": st.sampled_from(["even", "away", "up"]),
                    "scale_rounding": st.sampled_from(["up", "nearest", "floor", "even"]),
                    "nonfinite": st.sampled_from(["raise", "clip", "keep"]),
                    "method": st.sampled_from(["minmax", "absmean"]),
                },
            ),
        )
    )
)
def test_it_finds_something_exactly_where_quantize_refuses(case):
    """The one fault it cannot know is NaN in the data, under "raise"."""
    scheme, x, options = case
    findings = validate(scheme, shape=x.shape, dtype=x.dtype, **options)
    try:
        qn.quantize(x, scheme, **options)
    except DataError:
        assert options.get("nonfinite", "raise") == "raise"
        assert not np.isfinite(x).all()
    except QuantizationError as error:
        assert str(error) in {finding.reason for finding in findings}
    else:
        assert findings == []


def test_it_raises_nothing():
    for thing in (None, 5, b"", "Q9", ["Q8S"], object(), Scheme, memoryview(bytearray(b"Q8S"))):
        (finding,) = validate(thing)
        assert finding.fix
        assert finding.reason


def test_it_reports_every_fault_at_once():
    fields = [
        finding.field
        for finding in validate(
            Scheme("Q4S", block=(2, 2), pack_axis=1), shape=(8,), dtype=bool, nonfinite="keep"
        )
    ]
    assert fields == ["block", "pack_axis", "dtype", "nonfinite"]


def test_it_imports_no_numba():
    code = (
        "import sys; from qnumba.validate import validate; validate('nvfp4', shape=(4, 64));"
        "assert not any(name.split('.')[0] == 'numba' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_repeat_is_a_look_up():
    """5 µs is the aim; 20 lets a busy machine pass."""
    scheme = PRESETS["nvfp4"]
    best = np.inf
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(200):
            validate(scheme, shape=(64, 64))
        best = min(best, (time.perf_counter() - start) / 200)
    assert best < 20e-6


def test_scale_names():
    assert list(SCALE_ROWS) == SCALES
