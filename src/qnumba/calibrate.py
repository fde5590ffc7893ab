"""Ranges become scales: calibration, and parameters the caller brings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.devices import is_cuda_array
from qnumba.inputs import as_array, as_native, backend, cuda_home, nonfinite_error
from qnumba.layout import plan
from qnumba.memo import memo
from qnumba.params import (
    Method,
    Nonfinite,
    Options,
    Params,
    QParams,
    ScaleRounding,
    public_params,
)
from qnumba.reference import store_scale
from qnumba.validate import as_params, as_scheme, require, require_options, require_params

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from qnumba.layout import Plan
    from qnumba.scheme import Scheme


def calibrate(
    x: ArrayLike,
    scheme: Scheme | str,
    *,
    method: Method = "minmax",
    scale_rounding: ScaleRounding = "up",
    nonfinite: Nonfinite = "raise",
) -> QParams:
    """Find the scales and zero points of an array.

    Parameters
    ----------
    x : array_like
        Any shape; float16, bfloat16, float32, float64 or integers up to 2**53.
    scheme : Scheme or str
        What the parameters are for.
    method : str
        ``"minmax"``: the largest magnitude (affine: the range, with 0) of every block.
        ``"absmean"``: the mean magnitude, as in BitNet b1.58 (Ma et al., 2024).
    scale_rounding : str
        How a scale is stored: ``"up"`` (smallest stored number not below it), ``"nearest"``, or for
        minifloats with UE8M0 scales ``"floor"`` (OCP MX v1.0, section 6.3) and ``"even"``.
    nonfinite : str
        ``"raise"``, or ``"clip"`` / ``"keep"`` to look at finite values only.

    Returns
    -------
    QParams
        float32 scales as stored, shaped like the block grid (``()`` per tensor); the global scale
        of a two-level scheme; int32 zero points of an affine one.

    Raises
    ------
    SchemeError
        If the scheme does not fit the array or the options.
    QuantizedTypeError
        If the array's dtype cannot be quantized.
    DataError
        If values are NaN or infinite and ``nonfinite="raise"``.
    """
    if is_cuda_array(x):
        return _calibrate_on_cuda(x, scheme, Options("even", scale_rounding, nonfinite, method))
    array = as_array(x)
    options = Options("even", scale_rounding, nonfinite, method)
    layout = prepare(scheme, array, options)
    native = as_native(array)
    params, seen = backend().calibrate(native, layout, options)
    if seen and nonfinite == "raise":
        raise nonfinite_error(native, block_finder(layout))
    return public_params(params, layout)


def _calibrate_on_cuda(x: Any, scheme: Scheme | str, options: Options) -> QParams:
    """Do the same on a CUDA array; the parameters stay on its device."""
    home = cuda_home()
    source = home.opened(x)
    layout = prepare(scheme, source, options)
    native = home.native(source.view)
    params, seen = home.operations.calibrate(native, layout, options)
    if seen and options.nonfinite == "raise":
        raise nonfinite_error(home.numbers_of(native), block_finder(layout))
    return public_params(params, layout)


def prepare(scheme: Scheme | str, array: Any, options: Options) -> Plan:
    """Check a scheme against an array and options, and return the plan. Repeats cost a look-up.

    Raises
    ------
    SchemeError, QuantizedTypeError
        As the validator finds.
    """
    return _prepared(scheme, array.shape, array.dtype, options)


@memo
def _prepared(
    scheme: Scheme | str, shape: tuple[int, ...], dtype: np.dtype[Any], options: Options
) -> Plan:
    known = as_scheme(scheme)
    require(known, shape, dtype.name)
    require_options(known, options)
    return plan(known, shape)


def given_params(params: Any, layout: Plan, options: Options) -> Params:
    """Return the caller's parameters checked, and the scales rounded to their dtype.

    The rules ``floor`` and ``even`` act on ranges; scales that are given are rounded up instead.

    Raises
    ------
    SchemeError
        If they do not fit the scheme and the block grid.
    """
    if getattr(params, "stored_for", None) is layout:
        return Params(params.scales, params.global_scale, params.zero_points)
    given = as_params(params)
    require_params(layout.scheme, layout.shape, given)
    rule = options.scale_rounding if options.scale_rounding in {"up", "nearest"} else "up"
    scales = given.scales
    if layout.scale.name != "F32" or scales.dtype != np.float32:
        scales = store_scale(scales, layout.scale, rule)
    # Of its own: what is quantized must not change when the caller's arrays do.
    scales = np.array(scales, np.float32, order="C")
    scales += np.float32(0)  # which makes -0 a plain 0
    return Params(scales, given.global_scale, given.zero_points)


def block_finder(layout: Plan) -> Any:
    """Return the function from an element's index to its block's, as messages show it."""

    def find(index: tuple[int, ...]) -> Any:
        if not layout.grid:
            return 0
        block = tuple(i // step for i, step in zip(index, layout.block, strict=True))
        return block[0] if len(block) == 1 else block

    return find
