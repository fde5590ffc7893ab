"""Scales as bytes: one codec for each scale dtype. Exact both ways; nothing is rounded here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qnumba.errors import DecodeError, QuantizedTypeError, SchemeError
from qnumba.formats import SCALES, decode_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from typing_extensions import Buffer

E4M3_BIAS, E4M3_MANTISSA_BITS, E4M3_NORMAL = 7, 3, 2.0**-6
FLOAT32_BIAS, FLOAT32_MANTISSA_BITS = 127, 23


class ScaleCodec(NamedTuple):
    """The dtype of a stored scale, and the way from float32 to it and back."""

    dtype: str
    encode: Callable[[NDArray[np.float32]], NDArray[Any]]
    decode: Callable[[NDArray[Any]], NDArray[np.float32]]


def _to_half(scales: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):  # infinity is refused with everything else that differs
        return scales.astype(np.float16)


def _to_bfloat16(scales: NDArray[np.float32]) -> NDArray[np.uint32]:
    return scales.view(np.uint32) >> np.uint32(16)


def _from_bfloat16(stored: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _to_ue8m0(scales: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return the exponent fields; that of the subnormal 2**-127 is 0, which is its code."""
    return scales.view(np.uint32) >> np.uint32(FLOAT32_MANTISSA_BITS)


def _from_ue8m0(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    return _POWERS[stored]


def _to_ue4m3(scales: NDArray[np.float32]) -> NDArray[Any]:
    """Return the exponent and mantissa fields, the bias changed; below 2**-6 multiples of tiny."""
    shift = np.uint32(FLOAT32_MANTISSA_BITS - E4M3_MANTISSA_BITS)
    bias = np.uint32((FLOAT32_BIAS - E4M3_BIAS) << E4M3_MANTISSA_BITS)
    normal = (scales.view(np.uint32) >> shift) - bias
    subnormal = np.minimum(scales, E4M3_NORMAL) / np.float32(SCALES["UE4M3"].tiny)
    return np.where(scales < E4M3_NORMAL, subnormal, normal)


def _from_ue4m3(stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return E4M3 numbers; an unsigned dtype has none for the codes with a sign."""
    numbers = decode_table("E4M3")[stored]
    return np.where(stored >> np.uint8(7), np.float32(np.nan), numbers)


_POWERS = np.array([2.0 ** (code - FLOAT32_BIAS) for code in range(255)] + [np.nan], np.float32)

CODECS: dict[str, ScaleCodec] = {
    "F32": ScaleCodec("<f4", np.asarray, np.asarray),
    "F16": ScaleCodec("<f2", _to_half, np.asarray),
    "BF16": ScaleCodec("<u2", _to_bfloat16, _from_bfloat16),
    "UE8M0": ScaleCodec("u1", _to_ue8m0, _from_ue8m0),
    "UE4M3": ScaleCodec("u1", _to_ue4m3, _from_ue4m3),
}


def encode_scales(scales: NDArray[np.float32], dtype_name: str) -> bytes:
    """Return scales as the bytes of their storage dtype, in row-major order.

    Parameters
    ----------
    scales : numpy.ndarray
        float32, any shape; every number representable in the storage dtype.
    dtype_name : str
        F32, F16, BF16, UE8M0 or UE4M3.

    Returns
    -------
    bytes
        Little-endian; ``SCALES[dtype_name].bytes`` for each scale.

    Raises
    ------
    SchemeError
        If a scale is negative, not finite or not representable: nothing is rounded here.
    """
    codec = CODECS[dtype_name]
    scales = np.ascontiguousarray(scales, np.float32).reshape(-1)
    legal = _are_legal(scales)
    stored = codec.encode(np.where(legal, scales, np.float32(0))).astype(codec.dtype)
    wrong = ~legal | (codec.decode(stored) != scales)
    if wrong.any():
        given = float(scales[wrong.argmax()])
        fix = "use the scales that calibrate() or quantize() gives"
        message = f"the scale {given:.9g} is not a finite {dtype_name} number of at least 0; {fix}"
        raise SchemeError(message, field="scales", value=given, fix=fix)
    return stored.tobytes()


def decode_scales(buffer: Buffer, dtype_name: str) -> NDArray[np.float32]:
    """Return the scales that bytes hold: the inverse of ``encode_scales``.

    Parameters
    ----------
    buffer : bytes-like
        Whole scales of the storage dtype, little-endian.
    dtype_name : str
        F32, F16, BF16, UE8M0 or UE4M3.

    Returns
    -------
    numpy.ndarray
        float32, one-dimensional, its own memory.

    Raises
    ------
    DecodeError
        If the bytes are no whole number of scales, or hold a negative, infinite or NaN scale.
    """
    view = flat_view(buffer)
    width = SCALES[dtype_name].bytes
    if len(view) % width:
        raise DecodeError(f"{dtype_name} scales take {width} bytes each; got {len(view)} bytes")
    codec = CODECS[dtype_name]
    scales = codec.decode(np.frombuffer(view, codec.dtype)).astype(np.float32)
    wrong = ~_are_legal(scales)
    if wrong.any():
        index = int(wrong.argmax())
        message = (
            f"scale {index} of {scales.size} reads as {scales[index]}; a {dtype_name} scale is "
            "finite and at least 0, so the bytes are damaged or of another scheme"
        )
        raise DecodeError(message)
    return scales


def flat_view(buffer: Buffer) -> memoryview:
    """Return a read-only view of a buffer's bytes, without copying them.

    Raises
    ------
    QuantizedTypeError
        If it is no buffer, a strided one, or one of items that are no bytes and no numbers.
    """
    try:
        view = memoryview(buffer).toreadonly()
        if view.c_contiguous:
            return view.cast("B") if view.nbytes else memoryview(b"")
        problem = "it is strided; give contiguous bytes, such as bytes(buffer)"
    except (TypeError, ValueError, BufferError) as error:
        problem = str(error)
    message = f"expected bytes, a memoryview, an mmap or an array, got {type(buffer).__name__}"
    raise QuantizedTypeError(f"{message}: {problem}")


def _are_legal(scales: NDArray[np.float32]) -> NDArray[np.bool_]:
    return (scales >= 0) & np.isfinite(scales)
