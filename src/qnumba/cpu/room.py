"""Room to work in, and arrays that nobody counts.

Compiled code counts who holds an array whenever it hands one on or takes one from a tuple. Two
counts cost as much as sixteen divisions, and a tile would need dozens.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from qnumba.cpu.jit import compiled_as, inner

TILE = 4096  # values: 16 KiB of float32
ROOM = TILE * (5 * 4 + 8 + 1)  # bytes


@intrinsic
def _unowned(_typing, array):
    def emit(context, builder, signature, args):
        view = context.make_array(signature.return_type)(context, builder, args[0])
        for field in ("meminfo", "parent"):
            setattr(view, field, ir.Constant(getattr(view, field).type, None))
        return view._getvalue()  # noqa: SLF001 - how Numba's own code reads a structure

    return array(array), emit


@compiled_as(_unowned)
def unowned(array):
    """Return the same array, not counted. Who owns it must keep it to the end."""
    return array


@inner
def split_room(room):
    """Return the parts of a room: values, scales and points by run and by value, codes, raw."""
    numbers = room[: 5 * 4 * TILE].view(np.float32)
    z = numbers[3 * TILE :].view(np.int32)
    values, e, e_each = numbers[:TILE], numbers[TILE : 2 * TILE], numbers[2 * TILE : 3 * TILE]
    raw = room[5 * 4 * TILE : 7 * 4 * TILE].view(np.float64)
    codes = room[7 * 4 * TILE :]
    return (
        unowned(values),
        unowned(e),
        unowned(z[:TILE]),
        unowned(e_each),
        unowned(z[TILE:]),
        unowned(codes),
        unowned(raw),
    )
