"""Numbers that moved are quantized again, where that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from qnumba.calibrate import block_finder
from qnumba.fit_rules import OPTION_NAMES
from qnumba.inputs import as_native, backend, nonfinite_error
from qnumba.layout import plan
from qnumba.params import Options
from qnumba.validate import require, require_options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qnumba.moves.held import Held
    from qnumba.scheme import Scheme

Q = TypeVar("Q", bound="Held")


def encode(q: Q, numbers: NDArray[Any], scheme: Scheme, options: Options) -> Q:
    """Return numbers quantized, as an array like ``q``."""
    require(scheme, numbers.shape, "float32")
    require_options(scheme, options)
    layout = plan(scheme, numbers.shape)
    words = np.empty(layout.words_shape, layout.words_dtype)
    native = as_native(numbers)
    params, nonfinite = backend().quantize(native, layout, options, None, words)
    if nonfinite and options.nonfinite == "raise":
        raise nonfinite_error(native, block_finder(layout))
    text = " ".join(f"{name}={choice}" for name, choice in options._asdict().items())
    return type(q)(layout, words, params, source_dtype=q.source_dtype, options=text)


def encode_again(q: Q, numbers: NDArray[Any]) -> Q:
    """Return moved numbers quantized with the scheme and by the rules that ``q`` was made with."""
    scheme = q.scheme
    if scheme.pack_axis >= max(numbers.ndim, 1):
        scheme = scheme.replace(pack_axis=0)
    return encode(q, numbers, scheme, _options_of(q))


def _options_of(q: Held) -> Options:
    """Return the options an array records, defaults where it records none that are known."""
    pairs = dict(word.split("=", 1) for word in q.options.split() if "=" in word)
    known = {name: choice for name, choice in pairs.items() if choice in OPTION_NAMES.get(name, ())}
    return Options(**known)  # type: ignore[arg-type]
