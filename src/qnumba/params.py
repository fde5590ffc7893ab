"""Scales, zero points and the options that make them: what a quantized array holds beside codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rounding = Literal["even", "away"]
ScaleRounding = Literal["up", "nearest", "floor", "even"]
Nonfinite = Literal["raise", "clip", "keep"]
Method = Literal["minmax", "absmean"]


class Options(NamedTuple):
    """How numbers are rounded, what becomes of NaN and infinity, and how a range is found."""

    rounding: Rounding = "even"
    scale_rounding: ScaleRounding = "up"
    nonfinite: Nonfinite = "raise"
    method: Method = "minmax"


class Params(NamedTuple):
    """The arrays a backend computes: scales and zero points have the shape of the block grid."""

    scales: NDArray[np.float32]
    global_scale: np.float32 | None = None
    zero_points: NDArray[np.int32] | None = None


@dataclass(frozen=True, eq=False)
class QParams:
    """The quantization parameters of an array, as stored.

    Attributes
    ----------
    scales : numpy.ndarray
        float32, shaped like the block grid; shape ``()`` for one scale per tensor. Real units of
        the array per code step (relative to ``global_scale`` in two-level schemes).
    global_scale : numpy.float32 or None
        The per-tensor scale of a two-level scheme.
    zero_points : numpy.ndarray or None
        int32, shaped like ``scales``; the code that stands for 0 in affine schemes.
    """

    scales: NDArray[np.float32]
    global_scale: np.float32 | None = None
    zero_points: NDArray[np.int32] | None = None

    def __eq__(self, other: object) -> bool:
        """Compare by bits."""
        if not isinstance(other, QParams):
            return NotImplemented
        return _fingerprint(self) == _fingerprint(other)

    __hash__ = None  # type: ignore[assignment]


def public_params(params: Params, layout: object) -> QParams:
    """Return parameters a backend made as QParams: read-only, and known to fit their plan."""
    scales, global_scale, points = params
    public = QParams(read_only(scales), global_scale, None if points is None else read_only(points))
    vars(public)["stored_for"] = layout
    return public


def read_only(array: Any) -> Any:
    """Return a view that cannot be written through; a CUDA array, which has none, itself."""
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _fingerprint(params: QParams) -> tuple[object, ...]:
    """Return what two equal sets of parameters share: shapes and bytes."""
    parts = (params.scales, params.global_scale, params.zero_points)
    return tuple(
        None if part is None else (np.shape(part), np.asarray(part).tobytes()) for part in parts
    )
