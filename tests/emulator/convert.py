"""Conversions: between numbers, to minifloats, and packing with saturation."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from emulator.memory import PtxError
from emulator.parse import TYPES

# dtype, largest, bits, the code of NaN
MINIFLOATS = {
    "e4m3x2": (ml_dtypes.float8_e4m3fn, 448.0, 8, 0x7F),
    "e5m2x2": (ml_dtypes.float8_e5m2, 57344.0, 8, 0x7F),
    "e2m1x2": (ml_dtypes.float4_e2m1fn, 6.0, 4, 0x7),
}
HALVES = {"f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16}
WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
DIRECTED = ("rp", "rm", "rz")


def execute(run, parts, operands, active):
    """Do one instruction."""
    form = next((form for part, form in FORMS.items() if part in parts), _number)
    form(run, parts, operands, active)


def _pack(run, parts, operands, active):
    """Saturate two integers, and put them below what a third holds."""
    kind = parts[parts.index("pack") + 2]
    bits = int(kind[1:])
    lo, hi = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    high, low = (
        np.clip(run.read(operand, "s32", active).astype(np.int64), lo, hi) & (1 << bits) - 1
        for operand in operands[1:3]
    )
    rest = run.read(operands[3], "u32", active).astype(np.int64) if len(operands) > 3 else 0
    packed = (rest << 2 * bits | high << bits | low) & 0xFFFFFFFF
    run.write(operands[0], packed.astype(np.uint32), active)


def _to_minifloats(run, parts, operands, active):
    """Convert two float32 to minifloats, the first into the high half."""
    if parts[-1] != "f32" or "satfinite" not in parts or "rn" not in parts:
        raise PtxError("a conversion of minifloats that the emulator does not know")
    dtype, most, bits, nan = MINIFLOATS[next(part for part in parts if part in MINIFLOATS)]

    def code(operand):
        number = run.read(operand, "f32", active)
        kept = np.clip(np.where(np.isnan(number), 0, number), -most, most).astype(dtype)
        return np.where(np.isnan(number), nan, kept.view(np.uint8)).astype(np.uint16)

    pair = code(operands[1]) << bits | code(operands[2])
    run.write(operands[0], pair.astype(np.uint16 if bits == 8 else np.uint8), active)


def _to_halves(run, parts, operands, active):
    """Convert two float32 to 16 bits each, the first into the high half."""
    dtype = HALVES[next(part for part in parts if part in HALVES)]
    if "rn" not in parts or parts[-1] != "f32":
        raise PtxError("a conversion of halves that the emulator does not know")
    high, low = (
        run.read(operand, "f32", active).astype(dtype).view(np.uint16).astype(np.uint32)
        for operand in operands[1:3]
    )
    run.write(operands[0], high << np.uint32(16) | low, active)


FORMS = {
    "pack": _pack,
    **dict.fromkeys(MINIFLOATS, _to_minifloats),
    **dict.fromkeys(HALVES, _to_halves),
}


def _number(run, parts, operands, active):
    """Convert a number to another type."""
    to, source = TYPES[parts[-2]], TYPES[parts[-1]]
    x = run.read(operands[1], parts[-1], active)
    rounding = next((part for part in parts if part in WHOLE or part in DIRECTED), "rn")
    if source.kind == "f" and to.kind == "f":
        result = _float(x, to, rounding)
    elif source.kind == "f":
        result = _whole(WHOLE[rounding](x), to)
    elif "sat" in parts:
        limits = np.iinfo(to)
        result = np.clip(x.astype(object), limits.min, limits.max).astype(to)
    else:
        result = x.astype(to)
    run.write(operands[0], result, active)


def _float(x, to, rounding):
    """Convert between floats; a direction matters where the result is narrower."""
    if rounding in WHOLE:
        return WHOLE[rounding](x).astype(to)
    nearest = x.astype(to)
    if rounding not in DIRECTED or to.itemsize >= x.dtype.itemsize:
        return nearest
    back = nearest.astype(x.dtype)
    if rounding == "rp":
        return np.where(back < x, np.nextafter(nearest, to.type(np.inf)), nearest)
    if rounding == "rm":
        return np.where(back > x, np.nextafter(nearest, to.type(-np.inf)), nearest)
    return np.where(np.abs(back) > np.abs(x), np.nextafter(nearest, to.type(0)), nearest)


def _whole(number, to):
    """Convert a whole float to an integer: saturating, NaN to 0."""
    limits = np.iinfo(to)
    number = np.where(np.isnan(number), 0, number).astype(np.float64)
    inside = np.clip(number, float(limits.min), float(limits.max))
    above = number >= float(limits.max)
    return np.where(above, limits.max, np.where(above, 0, inside).astype(to)).astype(to)
