"""The sections of a quantized array, and the dense record: the sections one after another."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.errors import DecodeError, SchemeError
from qnumba.formats import STORES
from qnumba.params import Params, QParams
from qnumba.serialize.scales import decode_scales, encode_scales, flat_view
from qnumba.validate import require_params

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from qnumba.layout import Plan

    Part = bytes | memoryview

SECTIONS = ("words", "zero points", "scales", "global scale")


def record_size(plan: Plan) -> int:
    """Return the number of bytes of the dense record of an array."""
    return sum(section_sizes(plan))


def to_record(plan: Plan, words: NDArray[Any], params: Params) -> bytes:
    """Return the dense record: words, zero points, scales, global scale, nothing between them.

    Parameters
    ----------
    plan : Plan
        The layout of the scheme and shape.
    words : numpy.ndarray
        The codes in storage, of ``plan.words_shape`` and ``plan.words_dtype``.
    params : Params
        Scales (and zero points) of shape ``plan.grid``.

    Returns
    -------
    bytes
        ``record_size(plan)`` bytes, little-endian.
    """
    return b"".join(encode_sections(plan, words, params))


def from_record(buffer: Buffer, plan: Plan, *, copy: bool = False) -> tuple[NDArray[Any], Params]:
    """Read a dense record.

    Parameters
    ----------
    buffer : bytes-like
        Exactly ``record_size(plan)`` bytes.
    plan : Plan
        The layout of the scheme and shape: a record does not say what it holds.
    copy : bool
        False: the words are a read-only view of the buffer (of a copy where it is not aligned
        for them). True: they are a writable array of their own.

    Returns
    -------
    words : numpy.ndarray
    params : Params

    Raises
    ------
    DecodeError
        If the length is not exact, or the bytes hold what no writer makes.
    """
    view = flat_view(buffer)
    if len(view) != record_size(plan):
        message = (
            f"expected {record_size(plan)} bytes for {str(plan.scheme)!r} of shape {plan.shape}, "
            f"got {len(view)}; check the scheme, the shape and that the record is whole"
        )
        raise DecodeError(message)
    edges = accumulate(section_sizes(plan), initial=0)
    return decode_sections(plan, [view[a:b] for a, b in pairwise(edges)], copy=copy)


def section_sizes(plan: Plan) -> tuple[int, ...]:
    """Return the bytes of each of SECTIONS, in Python integers, which cannot overflow."""
    blocks = math.prod(plan.grid)
    return (
        math.prod(plan.words_shape) * plan.words_dtype.itemsize,
        blocks if plan.scheme.mode == "affine" else 0,
        blocks * plan.scale.bytes,
        4 if plan.scheme.two_level else 0,
    )


def encode_sections(plan: Plan, words: NDArray[Any], params: Params) -> list[Part]:
    """Return the bytes of each of SECTIONS."""
    zero_points, global_scale = params.zero_points, params.global_scale
    flat = np.ascontiguousarray(words, plan.words_dtype).reshape(-1)
    return [
        flat.view(np.uint8).data,
        b"" if zero_points is None else zero_points.astype(_point_dtype(plan)).tobytes(),
        encode_scales(params.scales, plan.scale.name),
        b"" if global_scale is None else encode_scales(np.asarray(global_scale), "F32"),
    ]


def decode_sections(
    plan: Plan, sections: Sequence[memoryview], *, copy: bool
) -> tuple[NDArray[Any], Params]:
    """Return the words and parameters that sections of the right sizes hold."""
    words = np.frombuffer(sections[0], plan.words_dtype)
    if copy or not words.flags.aligned:
        words = words.copy()
    words = words.reshape(plan.words_shape)
    words.flags.writeable = copy
    _require_padding(words, plan)
    points = np.frombuffer(sections[1], _point_dtype(plan)).astype(np.int32)
    params = Params(
        scales=decode_scales(sections[2], plan.scale.name).reshape(plan.grid),
        global_scale=decode_scales(sections[3], "F32")[0] if plan.scheme.two_level else None,
        zero_points=points.reshape(plan.grid) if plan.scheme.mode == "affine" else None,
    )
    try:
        require_params(plan.scheme, plan.shape, QParams(*params))
    except SchemeError as error:
        raise DecodeError(f"the bytes hold parameters that cannot be: {error}") from error
    return words, params


def _point_dtype(plan: Plan) -> str:
    return "u1" if plan.value.kind == "uint" else "i1"


def _require_padding(words: NDArray[Any], plan: Plan) -> None:
    """Refuse words with a bit set that belongs to no code: kernels may index tables by a code."""
    if words.size == 0:
        return
    word_bits, bits = STORES[plan.scheme.store].word_bits, plan.value.bits
    if word_bits:
        before, length, after = plan.packed
        used = length % (word_bits // bits) * bits
        wrong = used and int(words.reshape(before, -1, after)[:, -1].max()) >> used
    else:
        lo = -(2 ** (bits - 1)) if plan.is_signed else 0
        wrong = words.min() < lo or words.max() >= lo + 2**bits
    if wrong:
        message = (
            f"bits are set that belong to no code of {str(plan.scheme)!r} and shape {plan.shape}; "
            "they are 0 in what a writer makes, so the bytes are damaged or of another scheme"
        )
        raise DecodeError(message)
