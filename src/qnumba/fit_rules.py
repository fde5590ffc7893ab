"""The rules of use as data: how a scheme must fit a shape, a dtype, parameters and options."""

from __future__ import annotations

from typing import Any, NamedTuple

from qnumba.fields import NUMBERS
from qnumba.formats import VALUES
from qnumba.rules import Rule, kind_of, listed, one_of


class ShapeCase(NamedTuple):
    """A scheme and the shape of an array."""

    scheme: Any
    shape: tuple[int, ...]


class DtypeCase(NamedTuple):
    """A scheme and the name of an array's dtype."""

    scheme: Any
    dtype: str


class ParamsCase(NamedTuple):
    """A scheme, the grid its scales must have (None: unknown) and what the parameters given are.

    ``points_shape`` is None without zero points; ``least`` and ``greatest`` are their ends.
    """

    scheme: Any
    grid: tuple[int, ...] | None
    scales_shape: tuple[int, ...]
    has_global: bool
    points_shape: tuple[int, ...] | None
    least: int
    greatest: int
    finite: bool


class OptionsCase(NamedTuple):
    """A scheme and the options it is to be used with."""

    scheme: Any
    rounding: object
    scale_rounding: object
    nonfinite: object
    method: object


SHAPE_RULES: tuple[Rule, ...] = (
    Rule(
        "block",
        lambda s: s.scheme.block is not None and _block_rank(s.scheme) > len(s.shape),
        "the block {s.scheme.block} has more extents than the array of shape {s.shape} has axes",
        "drop the leading extents, or reshape the array",
        lambda s: {"block": s.scheme.block[-len(s.shape) :]} if s.shape else {"block": (1,)},
    ),
    Rule(
        "pack_axis",
        lambda s: s.scheme.pack_axis >= max(len(s.shape), 1),
        "the packed axis {s.scheme.pack_axis}, counted from the innermost, is outside an array "
        "of shape {s.shape}",
        "use a smaller pack_axis=; 0 is the last axis",
        lambda s: {"pack_axis": max(len(s.shape) - 1, 0)},
    ),
)

DTYPE_RULES: tuple[Rule, ...] = (
    Rule(
        "dtype",
        lambda s: s.dtype not in NUMBERS,
        "arrays of dtype {s.dtype} cannot be quantized",
        f"convert to one of {listed(NUMBERS)}",
    ),
)


PARAMS_RULES: tuple[Rule, ...] = (
    Rule(
        "global_scale",
        lambda s: s.has_global and not s.scheme.two_level,
        "{s.scheme} does not take a per-tensor scale",
        "drop global_scale, or give the scheme a block and tensor_scale=F32",
    ),
    Rule(
        "global_scale",
        lambda s: not s.has_global and s.scheme.two_level,
        "{s.scheme} requires a per-tensor scale",
        "give global_scale, for example from calibrate()",
    ),
    Rule(
        "zero_points",
        lambda s: s.points_shape is not None and s.scheme.mode != "affine",
        "{s.scheme} does not take zero points",
        "drop zero_points, or use mode=affine",
    ),
    Rule(
        "zero_points",
        lambda s: s.points_shape is None and s.scheme.mode == "affine",
        "{s.scheme} requires zero points",
        "give zero_points, one integer per scale",
    ),
    Rule(
        "scales",
        lambda s: s.grid is not None and s.scales_shape != s.grid,
        "the scales have shape {s.scales_shape}, but the block grid is {s.grid}",
        "give one scale per block; a scheme without a block takes a scale of shape ()",
    ),
    Rule(
        "zero_points",
        lambda s: s.points_shape is not None and s.points_shape != s.scales_shape,
        "the zero points have shape {s.points_shape}, but the scales have shape {s.scales_shape}",
        "give one zero point per scale",
    ),
    Rule(
        "scales",
        lambda s: not s.finite,
        "a scale is negative, NaN or infinite",
        "give finite scales of at least 0",
    ),
    Rule(
        "zero_points",
        lambda s: (
            s.points_shape is not None
            and not (
                VALUES[s.scheme.value].lo <= s.least and s.greatest <= VALUES[s.scheme.value].hi
            )
        ),
        "the zero points run from {s.least} to {s.greatest}, outside the codes of {s.scheme.value}",
        "give zero points that are codes of the value type",
    ),
)

OPTION_NAMES: dict[str, tuple[str, ...]] = {
    "rounding": ("even", "away"),
    "scale_rounding": ("up", "nearest", "floor", "even"),
    "nonfinite": ("raise", "clip", "keep"),
    "method": ("minmax", "absmean"),
}

OPTION_RULES: tuple[Rule, ...] = (
    *(
        one_of(field, names, f"{field} rule")._replace(change=None)
        for field, names in OPTION_NAMES.items()
    ),
    Rule(
        "scale_rounding",
        lambda s: (
            s.scale_rounding in {"floor", "even"}
            and (s.scheme.scale_dtype != "UE8M0" or kind_of(s.scheme) != "float")
        ),
        "scale_rounding={s.scale_rounding} is defined for minifloats with UE8M0 scales, not for "
        "{s.scheme}",
        "use scale_rounding=up or nearest",
    ),
    Rule(
        "nonfinite",
        lambda s: s.nonfinite == "keep" and s.scheme.value not in {"E4M3", "E5M2"},
        "{s.scheme.value} has no code for NaN or infinity",
        "use nonfinite=clip, or a value type that holds them: E4M3, E5M2",
    ),
    Rule(
        "method",
        lambda s: s.method == "absmean" and s.scheme.two_level,
        "AbsMean calibration has no two-level form: a mean over the block cannot be split in two",
        "use method=minmax, or drop tensor_scale from the scheme",
    ),
    Rule(
        "method",
        lambda s: s.method == "absmean" and s.scheme.mode == "affine",
        "absmean finds a scale around 0, but affine mode needs a range",
        "use method=minmax, or a symmetric scheme",
    ),
)


def _block_rank(scheme: Any) -> int:
    """Return the number of axes a block needs; a block of one element needs none."""
    return 0 if scheme.block == (1,) else len(scheme.block)
