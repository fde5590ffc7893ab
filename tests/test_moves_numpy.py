"""NumPy's own functions on quantized arrays."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import qnumba as qn
from qnumba.moves.functions import FUNCTIONS
from qnumba.moves.held import Held
from support import assert_same_bits

X = np.random.default_rng(0).normal(size=(6, 80)).astype(np.float32)
Q = qn.quantize(X, "Q4S block=16:F16")

NUMPY = {
    np.reshape: lambda a: np.reshape(a, (3, 2, 80)),
    np.ravel: np.ravel,
    np.transpose: np.transpose,
    np.matrix_transpose: np.matrix_transpose,
    np.moveaxis: lambda a: np.moveaxis(a[None], [0, 2], [-1, 0]),
    np.swapaxes: lambda a: np.swapaxes(a, 0, 1),
    np.flip: lambda a: np.flip(a, 1),
    np.fliplr: np.fliplr,
    np.flipud: np.flipud,
    np.take: lambda a: np.take(a, [[1, 2], [3, 0]], axis=0),
    np.take_along_axis: lambda a: np.take_along_axis(a, np.array([[3], [1]] * 3), axis=1),
    np.broadcast_to: lambda a: np.broadcast_to(a, (2, 6, 80)),
    np.expand_dims: lambda a: np.expand_dims(a, (0, -1)),
    np.squeeze: lambda a: np.squeeze(np.expand_dims(a, 1), axis=1),
    np.concatenate: lambda a: np.concatenate([a, a], axis=1),
    np.stack: lambda a: np.stack((a, a), axis=-1),
    np.split: lambda a: np.split(a, 5, axis=1)[2],
    np.argmax: lambda a: np.argmax(a, axis=0, keepdims=True),
    np.argmin: np.argmin,
    np.max: lambda a: np.max(a, axis=1),
    np.min: np.min,
    np.sort: np.sort,
    np.argsort: lambda a: np.argsort(a, axis=0, kind="stable"),
    np.shape: np.shape,
    np.ndim: np.ndim,
    np.size: lambda a: np.size(a, 1),
}


@pytest.mark.parametrize("function", NUMPY, ids=lambda function: function.__name__)
def test_numpy_functions(function):
    found, expected = NUMPY[function](Q), NUMPY[function](Q.dequantize())
    found = found.dequantize() if isinstance(found, qn.QArray) else found
    assert_same_bits(found, expected)


def test_every_numpy_function_of_the_table_is_tested():
    assert set(FUNCTIONS) == {*NUMPY, np.amax, np.amin}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: np.mean(Q), r"np\.mean needs q\.dequantize\(\) first"),
        (lambda: np.dot(Q, X.T), r"np\.dot needs"),
        (lambda: np.where(X > 0, Q, X), r"np\.where needs"),
        (lambda: np.max(Q, where=X > 0), "np.max of a quantized array: .*'where'"),
        (lambda: np.take(Q, [0], 0, mode="wrap"), "np.take of a quantized array: .*'mode'"),
        (lambda: np.reshape(Q, (80, 6), order="F"), "row-major"),
        (lambda: np.concatenate([Q, X]), "got ndarray"),
        (lambda: np.add(Q, 1), "Should be float, got quantized"),
    ],
)
def test_other_numpy_functions_are_refused(call, message):
    with pytest.raises(qn.QuantizedTypeError, match=message):
        call()


def test_the_page_names_every_method_and_function():
    page = (Path(__file__).parents[1] / "docs" / "moves.md").read_text(encoding="utf-8")
    ours = [
        kind
        for kind in qn.QArray.__mro__
        if kind.__module__.split(".")[1:2] in (["moves"], ["order"])
    ]
    names = {name for kind in ours for name in vars(kind) if not name.startswith("_")} - set(
        vars(Held)
    )
    names |= {function.__name__ for function in FUNCTIONS} - {"amax", "amin"}
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    assert names <= words
