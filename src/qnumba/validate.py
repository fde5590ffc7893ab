"""The validator: pure Python, runs before any compiled code, explains what is wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.errors import QuantizationError, QuantizedTypeError, SchemeError, cut
from qnumba.fields import NUMBERS, dtype_name, whole_numbers
from qnumba.fit_rules import (
    DTYPE_RULES,
    OPTION_RULES,
    PARAMS_RULES,
    SHAPE_RULES,
    DtypeCase,
    OptionsCase,
    ParamsCase,
    ShapeCase,
)
from qnumba.formats import INTEGERS, MAX_ELEMENTS, MAX_RANK, SCALES
from qnumba.inputs import as_array
from qnumba.layout import plan
from qnumba.memo import memo
from qnumba.params import Options, QParams
from qnumba.scheme import Scheme, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from qnumba.rules import Rule


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes
    ----------
    field : str
        The argument at fault.
    value : object
        What was given for it.
    reason : str
        What is wrong, what to do, and the nearest valid scheme if there is one.
    fix : str
        What to do.
    nearest : Scheme or None
        A valid scheme close to the one given.
    """

    field: str
    value: object
    reason: str
    fix: str
    nearest: Scheme | None

    def __str__(self) -> str:
        """Return the reason as one line."""
        return f"{self.field}: {self.reason}"


def validate(
    scheme: Scheme | str,
    *,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    params: QParams | None = None,
    **options: Any,
) -> list[Finding]:
    """Check a scheme, alone or against what it is to be used with. Compiles and raises nothing.

    Parameters
    ----------
    scheme : Scheme or str
        A scheme, its text form, or a preset's name.
    shape : sequence of int, optional
        Shape of the array.
    dtype : dtype-like, optional
        Dtype of the array.
    params : QParams, optional
        Parameters to be used with the scheme (and the shape, if given).
    **options
        Any of ``rounding``, ``scale_rounding``, ``nonfinite`` and ``method``.

    Returns
    -------
    list of Finding
        Empty if all is well.

    Examples
    --------
    >>> validate("int4", shape=(4, 64), dtype="float32")
    []
    >>> print(validate("Q8S block=0")[0].fix)
    give an int, or a tuple of ints for a rectangle, such as block=32 or block=(128, 128)
    """
    plain = shape is None or (type(shape) is tuple and all(type(n) is int for n in shape))
    if params is None and plain:
        return list(_findings(scheme, shape, dtype, tuple(options.items())))
    return [_finding(error) for error in _faults(scheme, shape, dtype, params, options)]


@memo
def _findings(
    scheme: Scheme | str,
    shape: Sequence[int] | None,
    dtype: Any,
    options: tuple[tuple[str, Any], ...],
) -> tuple[Finding, ...]:
    return tuple(_finding(error) for error in _faults(scheme, shape, dtype, None, dict(options)))


def require(scheme: Scheme, shape: tuple[int, ...], dtype: str) -> None:
    """Raise the first fault of a scheme used on an array. Cached, so repeats cost a look-up."""
    for error in _array_faults(scheme, shape, dtype):
        raise error


def require_options(scheme: Scheme, options: Options) -> None:
    """Raise the first fault of a scheme used with options. Cached."""
    for error in _option_faults(scheme, options):
        raise error


def require_params(scheme: Scheme, shape: tuple[int, ...], params: QParams) -> None:
    """Raise the first fault of parameters used with a scheme and a shape."""
    for error in _params_faults(scheme, shape, params):
        raise error


def as_scheme(scheme: Scheme | str) -> Scheme:
    """Return a Scheme from a Scheme, its text or a preset's name.

    Raises
    ------
    SchemeError
        If it is none of them.
    """
    return scheme if isinstance(scheme, Scheme) else Scheme.parse(scheme)


def _finding(error: QuantizationError) -> Finding:
    given = {name: getattr(error, name, None) for name in ("value", "fix", "nearest")}
    return Finding(getattr(error, "field", "dtype"), reason=str(error), **given)  # type: ignore[arg-type]


def _faults(
    scheme: Scheme | str,
    shape: Sequence[int] | None,
    dtype: Any,
    params: QParams | None,
    options: dict[str, Any],
) -> Iterator[QuantizationError]:
    """Yield everything wrong. A scheme that is no scheme is one fault, and the only one."""
    try:
        known = as_scheme(scheme)
    except SchemeError as error:
        yield error
        return
    sizes = None
    found: tuple[QuantizationError, ...] = ()
    try:
        sizes = None if shape is None else as_shape(shape)
        found = _array_faults(known, sizes, None if dtype is None else dtype_name(dtype))
    except SchemeError as error:
        found = (error,)
    yield from found
    try:
        yield from _option_faults(known, Options(**options))
    except TypeError:
        fix = f"use {', '.join(Options._fields)}"
        message = f"{', '.join(options)} are not all options; {fix}"
        yield SchemeError(message, field="options", value=options, fix=fix)
    if params is not None:
        try:
            yield from _params_faults(known, None if found else sizes, as_params(params))
        except SchemeError as error:
            yield error


def as_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape as a tuple of plain ints.

    Raises
    ------
    SchemeError
        If it is no sequence, an extent is negative or not a whole number, or if no array can have
        so many axes or elements.
    """
    sizes = whole_numbers(shape)
    if sizes is None or any(extent < 0 for extent in sizes):
        fix = "give a tuple of whole numbers of at least 0"
        message = f"{cut(repr(shape))} is not a shape; {fix}"
        raise SchemeError(message, field="shape", value=shape, fix=fix)
    if len(sizes) > MAX_RANK or math.prod(max(extent, 1) for extent in sizes) > MAX_ELEMENTS:
        fix = f"give at most {MAX_RANK} axes and fewer than 2**60 elements"
        message = f"no array can have the shape {cut(repr(shape))}; {fix}"
        raise SchemeError(message, field="shape", value=shape, fix=fix)
    return sizes


def as_params(params: Any) -> QParams:
    """Return parameters as NumPy arrays of real numbers: float32 or float64, int32, float32.

    Raises
    ------
    SchemeError
        If they are no QParams, or a part of them is not numbers.
    """
    if not isinstance(params, QParams):
        fix = "pass what calibrate() returns, or QParams(scales, global_scale, zero_points)"
        message = f"params is a {type(params).__name__}, not QParams; {fix}"
        raise SchemeError(message, field="params", value=params, fix=fix)
    return QParams(
        _scales(params.scales, "scales"),
        None if params.global_scale is None else _single(params.global_scale),
        None if params.zero_points is None else _integers(params.zero_points),
    )


def _part(given: Any, field: str, dtypes: tuple[str, ...]) -> NDArray[Any]:
    """Return a part of parameters as an array, through the door of the array to quantize."""
    fix = f"give {field} as numbers of one of the dtypes {', '.join(dtypes)}"
    try:
        array = as_array(given)
    except QuantizedTypeError as error:
        raise SchemeError(f"{field}: {error}; {fix}", field=field, value=given, fix=fix) from error
    if not _is_one_of(array.dtype, dtypes):
        message = f"{field} have dtype {array.dtype}; {fix}"
        raise SchemeError(message, field=field, value=given, fix=fix)
    return array


@memo
def _is_one_of(dtype: np.dtype[Any], names: tuple[str, ...]) -> bool:
    return dtype.name in names


def _scales(given: Any, field: str) -> NDArray[Any]:
    array = _part(given, field, NUMBERS)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _single(given: Any) -> np.float32:
    """Return the per-tensor scale."""
    array = _scales(given, "global_scale")
    if array.size != 1:
        fix = "give one number"
        message = (
            f"the per-tensor scale must have exactly one element, got shape {array.shape}; {fix}"
        )
        raise SchemeError(message, field="global_scale", value=given, fix=fix)
    with np.errstate(over="ignore"):
        return np.float32(array.reshape(())[()])


def _integers(given: Any) -> NDArray[np.int32]:
    """Return zero points as int32."""
    array = _part(given, "zero_points", INTEGERS)
    return np.asarray(np.clip(array.astype(np.float64), -(2**31), 2**31 - 1), np.int32, order="C")


@memo
def _array_faults(
    scheme: Scheme, shape: tuple[int, ...] | None, dtype: str | None
) -> tuple[QuantizationError, ...]:
    faults: list[QuantizationError] = []
    if shape is not None:
        faults += _broken(SHAPE_RULES, ShapeCase(scheme, shape), scheme)
    if dtype is not None:
        faults += [
            _as_type_error(error)
            for error in _broken(DTYPE_RULES, DtypeCase(scheme, dtype), scheme)
        ]
    return tuple(faults)


def _as_type_error(error: SchemeError) -> QuantizedTypeError:
    """Return the fault of a dtype as the TypeError it is, with the same attributes."""
    other = QuantizedTypeError(str(error))
    vars(other).update(vars(error))
    return other


@memo
def _option_faults(scheme: Scheme, options: Options) -> tuple[SchemeError, ...]:
    found = next(_broken(OPTION_RULES, OptionsCase(scheme, *options), scheme), None)
    return () if found is None else (found,)


def _params_faults(
    scheme: Scheme, shape: tuple[int, ...] | None, params: QParams
) -> tuple[SchemeError, ...]:
    scales, over, points = params.scales, params.global_scale, params.zero_points
    grid = () if scheme.block is None else None if shape is None else plan(scheme, shape).grid
    least, greatest = (0, 0) if points is None else map(int, _ends(points))
    shape_of_points = None if points is None else points.shape
    finite = _finite(params)
    case = ParamsCase(
        scheme, grid, scales.shape, over is not None, shape_of_points, least, greatest, finite
    )
    return _params_case_faults(case)


@memo
def _params_case_faults(case: ParamsCase) -> tuple[SchemeError, ...]:
    return tuple(_broken(PARAMS_RULES, case, case.scheme))


def _ends(numbers: NDArray[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest of some numbers: NaN if one is, 0 if there is none."""
    if numbers.ndim == 0:
        return numbers[()], numbers[()]
    return (numbers.min(), numbers.max()) if numbers.size else (0, 0)


def _finite(params: QParams) -> bool:
    """Return whether every scale, and its product with the global scale, is a finite size."""
    over = 1.0 if params.global_scale is None else float(params.global_scale)
    least, greatest = map(float, _ends(params.scales))
    most = SCALES["F32"].max
    return 0 <= over <= most and least >= 0 and greatest <= most and greatest * over <= most


def _broken(rules: tuple[Rule, ...], case: Any, scheme: Scheme) -> Iterator[SchemeError]:
    """Yield the faults in order; a rule is looked at only when the one before it is dealt with."""
    arguments = {name: given for name, given in vars(scheme).items() if name != "_hash"}
    return (refusal(rule, case, arguments) for rule in rules if rule.broken(case))
