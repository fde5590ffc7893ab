"""What a move needs of a quantized array: its parts, and how to make another like it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from qnumba.devices import is_cuda_array
from qnumba.errors import UnsupportedSchemeError
from qnumba.layout import Plan, plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qnumba.params import Params
    from qnumba.scheme import Scheme

Q = TypeVar("Q", bound="Held")


class Parts(NamedTuple):
    """The words and parameters of an array, and the plan that says what they are."""

    plan: Plan
    words: NDArray[Any]
    params: Params

    @property
    def scheme(self) -> Scheme:
        """How numbers became codes."""
        return self.plan.scheme

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.plan.shape


class Held:
    """The face of a QArray that its moves and comparisons use."""

    _plan: Plan  # the one source of scheme and shape
    _words: NDArray[Any]
    _made: tuple[str, str]  # source_dtype and options

    def __init__(
        self,
        layout: Plan,
        words: NDArray[Any],
        params: Params | None,
        *,
        source_dtype: str,
        options: str = "",
    ) -> None:
        raise NotImplementedError

    @property
    def scheme(self) -> Scheme:
        """How numbers became codes."""
        return self._plan.scheme

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array that was quantized."""
        return self._plan.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._plan.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._plan.size

    @property
    def source_dtype(self) -> str:
        """Name of the dtype of the array that was quantized."""
        return self._made[0]

    @property
    def options(self) -> str:
        """The rounding and calibration rules that made the codes, as text; empty if not known."""
        return self._made[1]

    def codes(self) -> NDArray[Any]:
        """Return one integer per element."""
        raise NotImplementedError

    def dequantize(self, dtype: Any = ..., out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the numbers the codes stand for."""
        raise NotImplementedError

    def _filled(self) -> Params:
        """Return the parameters, if the array's quantization finished."""
        raise NotImplementedError


def parts_of(q: Held) -> Parts:
    """Return the parts of an array.

    Raises
    ------
    UnsupportedSchemeError
        If it is on a CUDA device.
    """
    if is_cuda_array(q._words):  # noqa: SLF001 - the one door to them
        fix = "call q.to_host() first, and to_device() after"
        raise UnsupportedSchemeError(f"arrays move on the host only; {fix}", field="q", fix=fix)
    return Parts(q._plan, q._words, q._filled())  # noqa: SLF001 - the one door to them


def rebuilt(scheme: Scheme, shape: tuple[int, ...], words: NDArray[Any], params: Params) -> Parts:
    """Return parts, the words in the form and order that their plan asks for."""
    layout = plan(scheme, shape)
    return Parts(layout, np.asarray(words.reshape(layout.words_shape), order="C"), params)


def like(q: Q, parts: Parts) -> Q:
    """Return an array of other parts that was made as ``q`` was, and shares no writable memory."""
    words, own = parts.words, parts_of(q).words
    if own.flags.writeable and np.may_share_memory(words, own):
        words = words.copy()  # else quantize(out=q) would change both
    return type(q)(parts.plan, words, parts.params, source_dtype=q.source_dtype, options=q.options)
