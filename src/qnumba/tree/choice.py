"""Which array of a tree gets which scheme, and why not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.errors import QuantizationError, SchemeError, cut
from qnumba.fields import whole_number
from qnumba.formats import FLOATS
from qnumba.inputs import as_array
from qnumba.params import Options
from qnumba.qarray import QArray
from qnumba.tree.walk import is_array
from qnumba.validate import as_scheme, require, require_options

if TYPE_CHECKING:
    from qnumba.scheme import Scheme


class Choice(NamedTuple):
    """The scheme of an array; None, and the reason, where it is left as it is."""

    scheme: Scheme | None
    reason: str = ""


class Chooser:
    """Chooses by patterns, dtype, size and fit; the arguments are those of ``quantize_tree``."""

    def __init__(
        self,
        scheme: Any,
        include: Any,
        exclude: Any,
        min_size: int,
        on_invalid: Any,
        options: dict[str, Any],
    ) -> None:
        self.include = _patterns(include, "include")
        self.exclude = _patterns(exclude, "exclude")
        schemes = scheme if isinstance(scheme, Mapping) else {"*": scheme}
        self.schemes = {
            pattern: None if given is None else as_scheme(given)
            for pattern, given in schemes.items()
        }
        if whole_number(min_size) is None:
            fix = "give a number of elements"
            message = f"min_size is {cut(repr(min_size))}; {fix}"
            raise SchemeError(message, field="min_size", value=min_size, fix=fix)
        self.min_size = min_size
        named_policy = isinstance(on_invalid, str) and on_invalid in {"skip", "raise"}
        self.policy = on_invalid if named_policy else as_scheme(on_invalid)
        self.options = _options(options)
        for known in self.schemes.values():
            if known is not None:
                require_options(known, self.options)
        self._used: set[str] = {"*"}

    def choose(self, path: str, leaf: Any) -> Choice:
        """Return the scheme of a leaf."""
        if isinstance(leaf, QArray):
            return Choice(None, "is quantized already")
        if not is_array(leaf):
            return Choice(None, "is no array")
        included, excluded = (self._match(path, names) for names in (self.include, self.exclude))
        pattern = self._match(path, self.schemes)
        scheme = None if pattern is None else self.schemes[pattern]
        shape, dtype = tuple(leaf.shape), dtype_name(leaf)
        for leave, reason in (
            (dtype not in FLOATS, f"dtype {dtype} is no float"),
            (included is None, "no pattern of include matches"),
            (excluded is not None, f"{excluded!r} is excluded"),
            (pattern is None, "no pattern of the schemes matches"),
            (scheme is None, f"{pattern!r} is left"),
            (
                math.prod(shape) < self.min_size,
                f"fewer elements than min_size={self.min_size}",
            ),
        ):
            if leave:
                return Choice(None, reason)
        return self._fitting(path, leaf, scheme)  # type: ignore[arg-type]

    def unused(self) -> tuple[str, ...]:
        """Return the patterns that no array matched so far."""
        names = dict.fromkeys([*self.include, *self.exclude, *self.schemes])
        return tuple(name for name in names if name not in self._used)

    def _match(self, path: str, patterns: Any) -> str | None:
        """Return the first pattern that matches a path."""
        for pattern in patterns:
            if fnmatchcase(path, pattern):
                self._used.add(pattern)
                return str(pattern)
        return None

    def _fitting(self, path: str, leaf: Any, scheme: Scheme) -> Choice:
        """Return the scheme if it fits the array, else what ``on_invalid`` says."""
        try:
            _require_fit(leaf, scheme)
        except QuantizationError as error:
            if self.policy == "raise":
                raise named(error, path) from error
            if self.policy == "skip":
                return Choice(None, str(error))
            try:
                _require_fit(leaf, self.policy)
                require_options(self.policy, self.options)
            except QuantizationError as second:
                raise named(second, path) from error
            return Choice(self.policy, f"in place of {str(scheme)!r}")
        return Choice(scheme)


def named(error: QuantizationError, path: str) -> QuantizationError:
    """Return an error of the same kind and attributes whose message begins with a path."""
    other = type(error)(f"{path}: {error}")
    vars(other).update(vars(error))
    return other


def dtype_name(array: Any) -> str:
    """Return the name of an array's dtype, of NumPy or of another library."""
    return str(getattr(array.dtype, "name", array.dtype)).rpartition(".")[2]


def _require_fit(leaf: Any, scheme: Scheme) -> None:
    if isinstance(leaf, np.ndarray):
        as_array(leaf)  # refuses masked arrays
    require(scheme, tuple(leaf.shape), dtype_name(leaf))


def _patterns(given: Any, field: str) -> tuple[str, ...]:
    """Return patterns; a set of them will do, as their order says nothing."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    patterns = tuple(given) if several else (given,)
    for pattern in patterns:
        if not isinstance(pattern, str):
            fix = 'give text such as "encoder.*.weight"'
            message = f"{cut(repr(pattern))} is no pattern; {fix}"
            raise SchemeError(message, field=field, value=pattern, fix=fix)
    return patterns


def _options(given: dict[str, Any]) -> Options:
    unknown = given.keys() - set(Options._fields)
    if unknown:
        fix = f"use {', '.join(Options._fields)}"
        message = f"{', '.join(sorted(unknown))}: no such option; {fix}"
        raise SchemeError(message, field="options", value=given, fix=fix)
    return Options(**given)
