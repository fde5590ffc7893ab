"""Parameters the caller brings: what they must be, and what validate says of them."""

import numpy as np
import pytest

import qnumba as qn
from qnumba.errors import SchemeError
from qnumba.validate import validate

PARAMS = [
    ("Q8S block=4:F32", qn.QParams(np.ones(2, np.float32)), None),
    ("Q8S block=4:F32", qn.QParams(np.ones(3, np.float32)), "scales"),
    ("Q8S block=4:F32", qn.QParams(np.ones((), np.float32)), "scales"),
    ("Q8S", qn.QParams(np.ones(1, np.float32)), "scales"),
    ("Q8S", qn.QParams(np.array(np.nan, np.float32)), "scales"),
    ("Q8S", qn.QParams(np.array(np.inf, np.float32)), "scales"),
    ("Q8S", qn.QParams(np.array(-1, np.float32)), "scales"),
    ("Q8S", qn.QParams(np.array(0, np.float32)), None),
    ("Q8S", qn.QParams(np.array(1, np.float32), np.float32(1)), "global_scale"),
    ("Q8S", qn.QParams(np.array(1, np.float32), None, np.array(0, np.int32)), "zero_points"),
    ("U8 affine", qn.QParams(np.array(1, np.float32)), "zero_points"),
    ("U8 affine", qn.QParams(np.array(1, np.float32), None, np.array(255, np.int32)), None),
    (
        "U8 affine",
        qn.QParams(np.array(1, np.float32), None, np.array(256, np.int32)),
        "zero_points",
    ),
    ("U8 affine", qn.QParams(np.array(1, np.float32), None, np.array(-1, np.int32)), "zero_points"),
    ("U8 affine", qn.QParams(np.array(1, np.float32), None, np.zeros(1, np.int32)), "zero_points"),
    ("Q8S block=4:F16 tensor=F32", qn.QParams(np.ones(2, np.float32)), "global_scale"),
    ("Q8S block=4:F16 tensor=F32", qn.QParams(np.ones(2, np.float32), np.float32(1)), None),
    (
        "Q8S block=4:F16 tensor=F32",
        qn.QParams(np.ones(2, np.float32), np.float32(np.inf)),
        "scales",
    ),
]


# What is no number in x is none in a scale.
NO_NUMBERS = [
    True, 1j, "1", b"1", None, [[1.0], [1.0, 2.0]], {"a": 1}, 2**2000, np.longdouble("1e4000"),
    np.ma.masked_array(1.0, mask=True), np.array("2020", "M8[D]"), np.ones((), bool),
]  # fmt: skip
PARAMS += [
    ("Q8S", 5, "params"),
    ("Q8S", qn.QParams([1.0]), "scales"),
    ("U8 affine", qn.QParams(1.0, None, [3]), "zero_points"),
    ("U8 affine", qn.QParams(1.0, None, 3), None),
    ("U8 affine", qn.QParams(1.0, None, np.uint64(2**64 - 5)), "zero_points"),
    ("Q8S affine", qn.QParams(1.0, None, np.int8(-5)), None),
    ("Q8S", qn.QParams(1), None),
    *(("Q8S", qn.QParams(given), "scales") for given in NO_NUMBERS),
    *(("U8 affine", qn.QParams(1.0, None, given), "zero_points") for given in (1.0, [[1], [1, 2]])),
    *(("Q8S block=4:F16 tensor=F32", qn.QParams(np.ones(2), given), "global_scale")
      for given in ("1", True, [1.0, 2.0], 2**2000)),
]  # fmt: skip


@pytest.mark.parametrize(("scheme", "params", "field"), PARAMS)
def test_params_against_schemes(scheme, params, field):
    x = np.arange(8, dtype=np.float32)
    findings = validate(scheme, shape=x.shape, params=params)
    assert [finding.field for finding in findings] == ([] if field is None else [field])
    if field is None:
        qn.quantize(x, scheme, params=params)
        return
    with pytest.raises(SchemeError) as caught:
        qn.quantize(x, scheme, params=params)
    assert caught.value.field == field
    assert caught.value.fix
