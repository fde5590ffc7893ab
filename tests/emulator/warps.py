"""Collectives of a warp, executed when all its threads have come."""

from __future__ import annotations

import numpy as np

from emulator.memory import PtxError
from emulator.parse import TYPES

REDUCED = {"max": np.maximum, "min": np.minimum, "add": np.add, "or": np.bitwise_or}


def execute(run, parts, operands, active):
    """Do one instruction."""
    COLLECTIVES[parts[0]](run, parts, operands, active)


def _shuffle(run, parts, operands, active):
    """Read another lane's register."""
    lane = run.specials["%laneid"][active].astype(np.int64)
    value = run.read(operands[1], "b32", active)
    by, control = (run.read(operand, "u32", active).astype(np.int64) for operand in operands[2:4])
    last = control & 31
    if (control >> 8).any() or (last != 31).any():
        raise PtxError("a shuffle in segments of a warp")
    source = lane ^ by if parts[2] == "bfly" else by & 31
    if parts[2] not in ("bfly", "idx"):
        raise PtxError(f"a shuffle {parts[2]}")
    where = np.full(run.alive.size + 32, -1)
    where[active] = np.arange(active.size)
    index = where[active - lane + source]
    if (index < 0).any():
        raise PtxError("a shuffle from a lane that has exited")
    to = operands[0][0] if isinstance(operands[0], list) else operands[0]
    run.write(to, value[index], active)


def _reduce(run, parts, operands, active):
    kind = parts[-1]
    value = run.read(operands[1], kind, active)
    _, start, inverse = np.unique(run.warp[active], return_index=True, return_inverse=True)
    result = REDUCED[parts[2]].reduceat(value, start)[inverse]
    run.write(operands[0], result.astype(TYPES[kind]), active)


def _vote(run, parts, operands, active):
    vote = run.registers[operands[1].lstrip("!")][active] ^ operands[1].startswith("!")
    warp = run.warp[active]
    yes, count = np.bincount(warp, vote), np.bincount(warp)
    result = {"any": yes > 0, "all": yes == count}[parts[2]]
    run.write(operands[0], result[warp], active)


COLLECTIVES = {"shfl": _shuffle, "vote": _vote, "redux": _reduce}
