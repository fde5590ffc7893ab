"""Arithmetic of integers and predicates."""

from __future__ import annotations

import numpy as np

from emulator.memory import PtxError
from emulator.parse import TYPES


def _divided(x, y):
    """Return x / y toward zero."""
    safe = np.where(y == 0, np.ones_like(y), y)
    if x.dtype.kind == "u":
        return np.where(y == 0, ~np.zeros_like(x), x // safe)
    quotient = np.abs(x) // np.abs(safe)
    return np.where((x < 0) != (safe < 0), -quotient, quotient)


def _remainder(x, y):
    return x - _divided(x, y) * y


PLAIN = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "min": np.minimum,
    "max": np.maximum,
    "div": _divided,
    "rem": _remainder,
    "not": lambda x: ~x,
    "neg": lambda x: np.zeros_like(x) - x,
    "abs": np.abs,
}


def _multiply(run, parts, operands, active):
    mode, kind = parts[1], parts[-1]
    x, y = (run.read(operand, kind, active) for operand in operands[1:3])
    result_kind = kind
    if mode == "wide":
        result_kind = kind[0] + str(2 * int(kind[1:]))
        x, y = x.astype(TYPES[result_kind]), y.astype(TYPES[result_kind])
    if mode == "hi":
        bits = int(kind[1:])
        high = [(int(a) * int(b)) >> bits for a, b in zip(x, y, strict=True)]
        result = np.array([h & ((1 << bits) - 1) for h in high], f"u{bits // 8}").view(TYPES[kind])
    else:
        result = x * y
    if parts[0] == "mad":
        result = result + run.read(operands[3], result_kind, active)
    run.write(operands[0], result, active)


def _shift(run, parts, operands, active):
    kind = parts[-1]
    x, by = run.read(operands[1], kind, active), run.read(operands[2], "u32", active)
    bits = 8 * x.dtype.itemsize
    inside = np.minimum(by, bits - 1).astype(x.dtype)
    if parts[0] == "shl":
        result = np.where(by >= bits, np.zeros_like(x), x << inside)
    else:
        past = x >> x.dtype.type(bits - 1) if kind[0] == "s" else np.zeros_like(x)
        result = np.where(by >= bits, past, x >> inside)
    run.write(operands[0], result.astype(x.dtype), active)


def _funnel(run, parts, operands, active):
    low, high, by = (run.read(operand, "u32", active).astype(np.uint64) for operand in operands[1:])
    by = np.minimum(by, 32) if "clamp" in parts else by & np.uint64(31)
    both = high << np.uint64(32) | low
    result = both << by >> np.uint64(32) if parts[1] == "l" else both >> by
    run.write(operands[0], (result & np.uint64(0xFFFFFFFF)).astype(np.uint32), active)


def _permute(run, _, operands, active):
    x, y, choice = (run.read(operand, "u32", active) for operand in operands[1:4])
    given = np.stack([x, y], 1).view(np.uint8)
    result = np.zeros((active.size, 4), np.uint8)
    for k in range(4):
        pick = choice >> np.uint32(4 * k) & np.uint32(15)
        byte = given[np.arange(active.size), pick & 7]
        result[:, k] = np.where(pick & 8, np.where(byte & 0x80, 0xFF, 0), byte)
    run.write(operands[0], result.view(np.uint32).ravel(), active)


def _logic(run, _, operands, active):
    x, y, z = (run.read(operand, "u32", active) for operand in operands[1:4])
    table, result = int(operands[4], 0), np.zeros(active.size, np.uint32)
    for k in range(8):
        if table >> k & 1:
            result |= (x if k & 4 else ~x) & (y if k & 2 else ~y) & (z if k & 1 else ~z)
    run.write(operands[0], result, active)


def _field(run, parts, operands, active):
    kind = parts[-1]
    x = run.read(operands[1], kind, active)
    start, length = (run.read(operand, "u32", active) & np.uint32(255) for operand in operands[2:4])
    bits = 8 * x.dtype.itemsize
    if kind[0] == "s" or (start + length > bits).any() or (length == 0).any():
        raise PtxError("a bit field that the emulator does not know")
    mask = (np.uint64(1) << length.astype(np.uint64)) - np.uint64(1)
    result = x.astype(np.uint64) >> start.astype(np.uint64) & mask
    run.write(operands[0], result.astype(x.dtype), active)


def _insert(run, parts, operands, active):
    kind = parts[-1]
    part, whole = (run.read(operand, kind, active) for operand in operands[1:3])
    start, length = (
        run.read(operand, "u32", active).astype(np.uint64) for operand in operands[3:5]
    )
    mask = ((np.uint64(1) << length) - np.uint64(1)) << start
    result = whole.astype(np.uint64) & ~mask | part.astype(np.uint64) << start & mask
    run.write(operands[0], result.astype(part.dtype), active)


def _count(run, parts, operands, active):
    x = run.read(operands[1], parts[-1], active)
    bits = 8 * x.dtype.itemsize
    numbers = [int(value) for value in x]
    if parts[0] == "popc":
        result = [number.bit_count() for number in numbers]
    else:
        result = [bits - number.bit_length() for number in numbers]
    run.write(operands[0], np.array(result, np.uint32), active)


SPECIAL = {
    "mul": _multiply,
    "mad": _multiply,
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel,
    "prmt": _permute,
    "lop3": _logic,
    "bfe": _field,
    "bfi": _insert,
    "popc": _count,
    "clz": _count,
}


def execute(run, parts, operands, active):
    """Do one instruction."""
    name, kind = parts[0], parts[-1]
    if name in SPECIAL:
        SPECIAL[name](run, parts, operands, active)
        return
    values = [run.read(operand, kind, active) for operand in operands[1:]]
    result = np.asarray(PLAIN[name](*values))
    run.write(operands[0], result if kind == "pred" else result.astype(TYPES[kind]), active)
