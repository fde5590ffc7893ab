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
ROOM = TILE * (8 * 4 + 8 + 1)  # bytes


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
    """Return the parts of a room, each for as many numbers as a tile has values.

    They are for values, scales and zero points by run, both by value, codes, raw scales, the
    inverses of scales, ratios, and ones.
    """
    numbers = room[: 8 * 4 * TILE].view(np.float32)
    z = numbers[3 * TILE : 5 * TILE].view(np.int32)
    return (
        unowned(numbers[:TILE]),
        unowned(numbers[TILE : 2 * TILE]),
        unowned(z[:TILE]),
        unowned(numbers[2 * TILE : 3 * TILE]),
        unowned(z[TILE:]),
        unowned(room[10 * 4 * TILE :]),
        unowned(room[8 * 4 * TILE : 10 * 4 * TILE].view(np.float64)),
        unowned(numbers[5 * TILE : 6 * TILE]),
        unowned(numbers[6 * TILE : 7 * TILE]),
        unowned(numbers[7 * TILE :]),
    )
