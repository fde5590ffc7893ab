"""The exceptions of qnumba: one family, so that a caller can catch all or one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qnumba.scheme import Scheme


SHOWN = 200  # characters that a message quotes of what was given


class QuantizationError(Exception):
    """Anything qnumba refuses."""


class SchemeError(QuantizationError, ValueError):
    """A scheme that is wrong in itself, or does not fit the array or the parameters given.

    Attributes
    ----------
    field : str
        The argument at fault.
    value : object
        What was given for it.
    fix : str
        What to do, in words.
    nearest : Scheme or None
        A valid scheme close to the one given, if there is one.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        value: object = None,
        fix: str = "",
        nearest: Scheme | None = None,
    ) -> None:
        super().__init__(message)
        self.field = field
        self.value = value
        self.fix = fix
        self.nearest = nearest

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the keyword attributes, which the default protocol would drop."""
        return (_rebuild, (type(self), str(self), dict(vars(self))))


class UnsupportedSchemeError(SchemeError, NotImplementedError):
    """A legal request that has no path on this backend or in this combination."""


class QuantizedTypeError(QuantizationError, TypeError):
    """A plain array where a quantized one is needed, the reverse, or a dtype of no use."""


class DataError(QuantizationError, ValueError):
    """Arrays that cannot be taken as they are.

    NaN or infinity, integers beyond 2**53, or what a file format has no name or place for.
    """


class DecodeError(QuantizationError, ValueError):
    """Bytes that are damaged, truncated or not what they claim to be."""


def cut(text: str) -> str:
    """Return text that a message can quote: what was given may be of any length."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _rebuild(kind: type[SchemeError], message: str, attributes: dict[str, object]) -> SchemeError:
    """Recreate a pickled SchemeError."""
    error = kind(message)
    vars(error).update(attributes)
    return error
