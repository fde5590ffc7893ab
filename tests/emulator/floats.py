"""Arithmetic of floats, and comparisons of anything."""

from __future__ import annotations

import numpy as np

from emulator.memory import PtxError
from emulator.parse import TYPES


def fused32(x, y, z):
    """Return x * y + z of float32, rounded once: through float64, rounded to odd."""
    x, y, z = (np.asarray(part, np.float32).astype(np.float64) for part in (x, y, z))
    product = x * y  # exact: 48 bits
    total = product + z
    back = total - product
    error = (product - (total - back)) + (z - back)
    odd = np.isfinite(total) & np.isfinite(error) & (error != 0) & (total.view(np.int64) & 1 == 0)
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(odd, np.nextafter(total, toward), total).astype(np.float32)


def extreme(pick, x, y, *, keep_nan):
    """Return the lesser or greater number: -0 is below +0; NaN loses unless it is to be kept."""
    result = pick(x, y)
    zeros = (x == 0) & (y == 0)
    ends = (x, y) if pick is np.fmin else (y, x)
    result = np.where(zeros, np.where(np.signbit(x), *ends), result)
    nan = np.isnan(x) | np.isnan(y) if keep_nan else np.isnan(x) & np.isnan(y)
    return np.where(nan, np.array(np.nan, x.dtype), result)


ROUNDED = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "rcp": lambda x: x.dtype.type(1) / x,
    "sqrt": np.sqrt,
    "fma": lambda x, y, z: fused32(x, y, z) if x.dtype == np.float32 else x * y + z,
}
EXACT = {"neg": lambda x: -x, "abs": np.abs}
EXTREMES = {"min": np.fmin, "max": np.fmax}
IEEE = ("add", "sub", "mul")


def execute(run, parts, operands, active):
    """Do one instruction."""
    name, kind = parts[0], parts[-1]
    if "ftz" in parts:
        raise PtxError("a subnormal number would be flushed to zero")
    values = [run.read(operand, kind, active) for operand in operands[1:]]
    if name in EXTREMES:
        result = extreme(EXTREMES[name], *values, keep_nan="NaN" in parts)
    elif name in EXACT:
        result = EXACT[name](*values)
    else:
        if (name not in IEEE and "rn" not in parts) or (name == "fma" and kind == "f64"):
            run.approximate.add(".".join(parts))
        result = ROUNDED[name](*values)
    run.write(operands[0], np.asarray(result, TYPES[kind]), active)


ORDERS = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}
ORDERS |= {"lo": ORDERS["lt"], "ls": ORDERS["le"], "hi": ORDERS["gt"], "hs": ORDERS["ge"]}
COMBINED = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def order(name, x, y):
    """Return a comparison; of floats, one with NaN is false unless its name ends in u."""
    nan = np.isnan(x) | np.isnan(y) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    if name in ("nan", "num"):
        return nan if name == "nan" else ~nan
    if name in ORDERS:
        return ORDERS[name](x, y) & ~nan
    return ORDERS[name.removesuffix("u")](x, y) | nan


def compare(run, parts, operands, active):
    """Set predicates."""
    x, y = (run.read(operand, parts[-1], active) for operand in operands[1:3])
    result = order(parts[1], x, y)
    if parts[2] in COMBINED:
        other = operands[3]
        value = run.registers[other.lstrip("!")][active] ^ other.startswith("!")
        result = COMBINED[parts[2]](result, value)
    targets = operands[0] if isinstance(operands[0], list) else [operands[0]]
    for register, value in zip(targets, (result, ~result), strict=False):
        run.write(register, value, active)


def select(run, parts, operands, active):
    """Choose by a predicate."""
    x, y = (run.read(operand, parts[-1], active) for operand in operands[1:3])
    run.write(operands[0], np.where(run.registers[operands[3]][active], x, y), active)
