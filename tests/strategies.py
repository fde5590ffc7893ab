"""Hypothesis strategies over the whole scheme space, and arrays of every awkward kind."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from oracle import BITS, INTEGER_RANGES, MINIFLOATS
from qnumba.scheme import Scheme

SIGNED = [name for name in INTEGER_RANGES if name.startswith("Q")]
INTEGERS = list(INTEGER_RANGES)
SYMMETRIC = SIGNED + list(MINIFLOATS)
SCALES = ["F32", "F16", "BF16", "UE8M0", "UE4M3"]
TWO_LEVEL = ["F16", "UE4M3"]
DTYPES = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
SHAPES = st.one_of(
    st.just(()),
    st.tuples(st.integers(0, 70)),
    st.tuples(st.integers(1, 9), st.integers(1, 40)),
    st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 12)),
    st.lists(st.integers(1, 4), min_size=4, max_size=6).map(tuple),
)


def modes_of(value: str) -> list[str]:
    """Return the modes a value type has."""
    if value in MINIFLOATS:
        return ["symmetric"]
    return (["symmetric"] if value in SIGNED else []) + ["affine", "lookup"]


def stores_of(value: str) -> list[str]:
    """Return the stores a value type has."""
    stores = ["native", "packed_u32"]
    if BITS[value] < 8:
        stores.append("packed_u8")
    return stores + ["packed_native"] * (value == "E2M1")


@st.composite
def tables(draw: st.DrawFn, value: str) -> Any:
    """Return a lookup table of 2**bits ascending float32 numbers."""
    size = 2 ** BITS[value]
    if size == 16 and draw(st.booleans()):
        return "nf4"
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([1.0, 1e-3, 1e6]))
    entries = np.unique(rng.normal(0, spread, size * 2).astype(np.float32))
    return tuple(np.sort(rng.permutation(entries)[:size]).tolist())


@st.composite
def schemes(draw: st.DrawFn, rank: int = 3, values: list[str] | None = None) -> Scheme:
    """Return any legal scheme for arrays of a rank."""
    value = draw(st.sampled_from(values or [*INTEGERS, *MINIFLOATS]))
    mode = draw(st.sampled_from(modes_of(value)))
    arguments: dict[str, Any] = {"mode": mode}
    if mode == "lookup":
        arguments["table"] = draw(tables(value))
    level = draw(st.sampled_from(["tensor", "block", "block", "two"]))
    if level == "two" and mode == "affine":
        level = "block"
    if level == "tensor":
        arguments["tensor_scale"] = draw(st.sampled_from([None, *SCALES]))
    else:
        extents = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 16, 32, 64, 2**31 - 1])
        arguments["block"] = draw(
            st.lists(extents, min_size=1, max_size=max(min(rank, 5), 1)).map(tuple)
        )
        if rank == 0:
            arguments["block"] = 1
        arguments["block_scale"] = draw(st.sampled_from(TWO_LEVEL if level == "two" else SCALES))
        if level == "two":
            arguments["tensor_scale"] = "F32"
    arguments["store"] = draw(st.sampled_from([None, *stores_of(value)]))
    if arguments["store"] != "native":
        arguments["pack_axis"] = draw(st.integers(0, max(rank - 1, 0)))
    return Scheme(value, **arguments)


def options_for(scheme: Scheme) -> st.SearchStrategy[dict[str, str]]:
    """Return options a scheme can be used with; ``nonfinite`` is always a rule that goes on."""
    scale_rules = ["up", "nearest"]
    if scheme.scale_dtype == "UE8M0" and scheme.value in MINIFLOATS:
        scale_rules += ["floor", "even"]
    policies = ["clip"] + ["keep"] * (scheme.value in {"E4M3", "E5M2"})
    methods = ["minmax", "minmax"]
    if scheme.mode != "affine" and not scheme.two_level:
        methods.append("absmean")
    return st.fixed_dictionaries(
        {
            "rounding": st.sampled_from(["even", "away"]),
            "scale_rounding": st.sampled_from(scale_rules),
            "nonfinite": st.sampled_from(policies),
            "method": st.sampled_from(methods),
        }
    )


def _normal(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.normal(0, 1, size)


def _wide(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.normal(0, 1, size) * 2.0 ** rng.uniform(-149, 127, size)


def _ties(rng: np.random.Generator, size: int) -> np.ndarray:
    numbers = rng.integers(-300, 300, size) / 2
    numbers[:1] = 127
    return numbers


def _subnormal(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.integers(-(2**20), 2**20, size) * 2.0**-149


def _huge(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.uniform(-1, 1, size) * float(np.finfo(np.float32).max)


def _zeros(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.where(rng.random(size) < 0.5, 0.0, -0.0)


def _rows(rng: np.random.Generator, size: int) -> np.ndarray:
    numbers = rng.normal(0, 1, size) * 10.0 ** rng.integers(-12, 12, size)
    return np.where(np.arange(size) % 16 < 8, 0, numbers)


def _constant(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.full(size, rng.choice([5.0, -3.25, 1e-6, 1e30]))


def _positive(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.uniform(10, 15, size)


def _negative(rng: np.random.Generator, size: int) -> np.ndarray:
    return -rng.exponential(1, size)


def _powers(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.choice([-1, 1], size) * 2.0 ** rng.integers(-20, 10, size)


FILLS = [
    _normal,
    _wide,
    _ties,
    _subnormal,
    _huge,
    _zeros,
    _rows,
    _constant,
    _positive,
    _negative,
    _powers,
]


@st.composite
def arrays(
    draw: st.DrawFn,
    shape: tuple[int, ...],
    dtypes: list[str] | None = None,
    *,
    nonfinite: bool = False,
) -> np.ndarray:
    """Return a contiguous array of one awkward kind, finite unless asked otherwise."""
    fill = draw(st.sampled_from(FILLS))
    dtype = DTYPES[draw(st.sampled_from(dtypes or list(DTYPES)))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = int(np.prod(shape))
    with np.errstate(over="ignore", under="ignore"):
        numbers = fill(rng, size).astype(dtype)
        largest = ml_dtypes.finfo(dtype).max
        numbers = np.where(np.isfinite(numbers), numbers, largest).astype(dtype)
    if nonfinite and size and draw(st.booleans()):
        for _ in range(draw(st.integers(1, 3))):
            numbers[rng.integers(size)] = rng.choice([np.nan, -np.nan, np.inf, -np.inf])
    return numbers.reshape(shape)


@st.composite
def cases(
    draw: st.DrawFn, *, nonfinite: bool = False, dtypes: list[str] | None = None
) -> tuple[Scheme, np.ndarray, dict[str, str]]:
    """Return a scheme, an array it fits, and options."""
    shape = draw(SHAPES)
    scheme = draw(schemes(len(shape)))
    return (
        scheme,
        draw(arrays(shape, dtypes, nonfinite=nonfinite)),
        draw(options_for(scheme)),
    )


def _strided(x: np.ndarray) -> np.ndarray:
    wide = np.zeros((*x.shape[:-1], x.shape[-1] * 3 + 1), x.dtype)
    wide[..., 1 : 1 + 3 * x.shape[-1] : 3] = x
    return wide[..., 1 : 1 + 3 * x.shape[-1] : 3]


def _negative_strides(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.flip(x))[(slice(None, None, -1),) * x.ndim]


def _transposed(x: np.ndarray) -> np.ndarray:
    axes = np.roll(np.arange(x.ndim), 1)
    return np.ascontiguousarray(x.transpose(axes)).transpose(np.argsort(axes))


def _unaligned(x: np.ndarray) -> np.ndarray:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    raw[1:] = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    return raw[1:].view(x.dtype).reshape(x.shape)


def _read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


def _big_endian(x: np.ndarray) -> np.ndarray:
    return x.astype(x.dtype.newbyteorder(">"))


LAYOUTS = {
    "fortran": np.asfortranarray,
    "transposed": _transposed,
    "strided": _strided,
    "negative": _negative_strides,
    "unaligned": _unaligned,
    "read-only": _read_only,
    "big-endian": _big_endian,
}
