"""Moves of quantized arrays: codes and scales go to new places, and nothing is quantized again.

``move(q).dequantize()`` equals ``move(q.dequantize())`` bit for bit. A move that no grid of blocks
can follow raises ``InexactMoveError``, and takes ``requantize=True``. docs/moves.md has the table.
"""

from qnumba.moves.blocks import InexactMoveError
from qnumba.moves.functions import call
from qnumba.moves.join import concatenate, split, stack
from qnumba.moves.methods import Moves

__all__ = ["InexactMoveError", "Moves", "call", "concatenate", "split", "stack"]
