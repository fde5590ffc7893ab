"""Quantize whole trees of arrays: the parameters of a model, the variables of a simulation.

A tree is nested dicts, lists, tuples, named tuples and dataclasses with arrays as leaves. Patterns
choose arrays by their dotted paths, such as ``"encoder.*.weight"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qnumba.errors import QuantizationError
from qnumba.formats import FLOATS
from qnumba.layout import plan
from qnumba.qarray import QArray
from qnumba.quantize import quantize
from qnumba.serialize import record_size
from qnumba.tree.choice import Choice, Chooser, dtype_name, named
from qnumba.tree.reports import TreeReport, report_tree
from qnumba.tree.summary import Row, Summary
from qnumba.tree.walk import is_array, leaves, rebuild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import DTypeLike

    from qnumba.params import QParams
    from qnumba.scheme import Scheme

    Schemes = Scheme | str | Mapping[str, Scheme | str | None]
    Patterns = str | Sequence[str]

__all__ = [
    "Row",
    "Summary",
    "TreeReport",
    "dequantize_tree",
    "quantize_tree",
    "report_tree",
    "summarize_tree",
]


def quantize_tree(
    params: Any,
    scheme: Schemes,
    *,
    include: Patterns = "*",
    exclude: Patterns = (),
    min_size: int = 0,
    on_invalid: Scheme | str = "skip",
    calibration: Callable[[Any, Scheme], QParams] | None = None,
    **options: Any,
) -> Any:
    """Quantize the arrays of a tree; everything else stays as it is.

    Parameters
    ----------
    params : tree
        Dicts, lists, tuples, named tuples and dataclasses of arrays, nested. It is not changed.
        Only arrays of a float dtype are quantized; other arrays, None, numbers and whatever else a
        tree holds are passed through.
    scheme : Scheme, str or mapping of str to Scheme, str or None
        One scheme for all arrays, or schemes by pattern: the first pattern that matches the path
        counts, None leaves the array, and so does no match.
    include, exclude : str or sequence of str
        Patterns of dotted paths, in the syntax of ``fnmatch`` (``*``, ``?``, ``[abc]``; case
        counts, and ``*`` matches dots too). An array is quantized if a pattern of ``include``
        matches its path and none of ``exclude``.
    min_size : int
        Arrays of fewer elements are left.
    on_invalid : str or Scheme
        What to do with an array the scheme does not fit, such as a vector under a 128 x 128 block:
        ``"skip"`` leaves it, ``"raise"`` raises, and a scheme is used in its place.
    calibration : callable, optional
        Returns the parameters of an array, given the array and its scheme; for example
        ``lambda x, s: MSE(s).update(x).params()``. Default: what ``method=`` says.
    **options
        For every array, as in ``quantize``: rounding, scale_rounding, nonfinite, method.

    Returns
    -------
    tree
        The same containers with a QArray for every array that is quantized. An array that the tree
        holds twice becomes one QArray, chosen by its first path; containers that hold themselves
        still do.

    Raises
    ------
    SchemeError
        If a scheme or an option is wrong, or a scheme does not fit and ``on_invalid="raise"``. The
        message begins with the path.
    QuantizedTypeError
        If an array cannot be quantized (a masked one) and ``on_invalid="raise"``.
    DataError
        If values are NaN or infinite and ``nonfinite="raise"``, whatever ``on_invalid`` says.

    Examples
    --------
    >>> import numpy as np
    >>> layer = {"weight": np.eye(4, dtype=np.float32), "bias": np.ones(4, np.float32), "step": 7}
    >>> quantize_tree({"layer": layer}, "int8", exclude="*.bias")["layer"]["weight"]
    QArray(shape=(4, 4), scheme='Q8S', 10 bits per value, 20 bytes)
    """
    chooser = Chooser(scheme, include, exclude, min_size, on_invalid, options)

    def replace(path: str, leaf: Any) -> Any:
        choice = chooser.choose(path, leaf)
        if choice.scheme is None:
            return leaf
        try:
            found = None if calibration is None else calibration(leaf, choice.scheme)
            return quantize(leaf, choice.scheme, params=found, **options)
        except QuantizationError as error:
            raise named(error, path) from error

    return rebuild(params, replace)


def summarize_tree(
    params: Any,
    scheme: Schemes,
    *,
    include: Patterns = "*",
    exclude: Patterns = (),
    min_size: int = 0,
    on_invalid: Scheme | str = "skip",
    **options: Any,
) -> Summary:
    """Return what ``quantize_tree`` would do with every array, and why, without doing it.

    Parameters
    ----------
    params, scheme, include, exclude, min_size, on_invalid, **options
        As for ``quantize_tree``.

    Returns
    -------
    Summary
        One row for each array: path, shape, dtype, bytes before and after, the scheme, or the
        reason why it is left. It prints as a table; ``to_dict()`` is fit for JSON.

    Raises
    ------
    SchemeError
        As ``quantize_tree`` does.

    Examples
    --------
    >>> import numpy as np
    >>> summarize_tree({"w": np.ones((8, 32), np.float32), "n": np.arange(3)}, "int4")
    path  shape  dtype    bytes  quantized  scheme, or why not
    w     8x32   float32  1,024        144  Q4S block=32:F16
    n     3      int64       24         24  -: dtype int64 is no float
    1 of 2 arrays quantized, 1,048 -> 168 bytes, 6.24 times smaller
    """
    chooser = Chooser(scheme, include, exclude, min_size, on_invalid, options)
    first: dict[int, tuple[Any, Row]] = {}

    def rows() -> Iterator[Row]:
        for path, leaf in leaves(params):
            if not is_array(leaf) and not isinstance(leaf, QArray):
                continue
            if id(leaf) in first:
                row = first[id(leaf)][1]
                reason = f"the same as {row.path}"
                yield row._replace(path=path, nbytes=0, quantized_nbytes=0, reason=reason)
                continue
            row = _row(path, leaf, chooser.choose(path, leaf))
            first[id(leaf)] = (leaf, row)
            yield row

    return Summary(tuple(rows()), chooser.unused())


def dequantize_tree(tree: Any, dtype: DTypeLike | None = None) -> Any:
    """Turn every QArray of a tree back into an array; everything else stays as it is.

    Parameters
    ----------
    tree : tree
        What ``quantize_tree`` returned, or any tree with QArrays in it. It is not changed.
    dtype : dtype-like, optional
        float32, float64, float16 or bfloat16. Default: for each array the float dtype it was
        quantized from; float32 where that is not known.

    Returns
    -------
    tree
        The same containers with arrays of numbers.

    Raises
    ------
    QuantizedTypeError
        If the dtype is none of those.
    """

    def replace(_: str, leaf: Any) -> Any:
        if not isinstance(leaf, QArray):
            return leaf
        source = leaf.source_dtype if leaf.source_dtype in FLOATS else "float32"
        return leaf.dequantize(source if dtype is None else dtype)

    return rebuild(tree, replace)


def _row(path: str, leaf: Any, choice: Choice) -> Row:
    """Return the row of an array that is met for the first time."""
    shape = tuple(int(extent) for extent in leaf.shape)
    after = before = int(leaf.nbytes)
    if choice.scheme is not None:
        after = record_size(plan(choice.scheme, shape))
    dtype = str(leaf.scheme) if isinstance(leaf, QArray) else dtype_name(leaf)
    return Row(path, shape, dtype, before, after, choice.scheme, choice.reason)
