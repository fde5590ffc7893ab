"""Kernels that pack codes into words and unpack them, along rows or across them.

Codes are bytes here. Along rows a line of words is a stream of bytes; across rows the k-th field
of a word is k rows further down.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from qnumba.cpu.jit import Kernel, inner, kernel, shared_kernel
from qnumba.cpu.runs import pack, unpack

PIECE = 65536  # codes that are packed at a time: a whole number of bytes


def pieces(rows: int, cols: int) -> tuple[int, int]:
    """Return how many pieces rows have, and how many of them a thread takes at a time."""
    return rows * -(-cols // PIECE), max(1, PIECE // cols)


@kernel
def pack_pieces(first, stop, codes, cols, row_bytes, width, words):
    """Pack some pieces of rows; the last words of a row are filled up with zeros."""
    per_row = (cols + PIECE - 1) // PIECE
    for piece in range(first, stop):
        row, column = piece // per_row, piece % per_row * PIECE
        count = min(PIECE, cols - column)
        line = row * row_bytes
        pack(codes, row * cols + column, count, width, words, line + column * width // 8)
        if column + count == cols:
            for k in range(line + (cols * width + 7) // 8, line + row_bytes):
                words[k] = 0


@shared_kernel
def pack_shared(parts, step, codes, cols, row_bytes, width, words):
    """Pack all pieces in threads."""
    for task in prange((parts + step - 1) // step):
        first = np.int64(task) * step
        pack_pieces(first, min(parts, first + step), codes, cols, row_bytes, width, words)


pack_lines = Kernel(pack_pieces, pack_shared)


@kernel
def unpack_pieces(first, stop, words, cols, row_bytes, width, sign, codes):
    """Unpack some pieces of rows; ``sign`` is the sign bit of a two's complement field, or 0."""
    per_row = (cols + PIECE - 1) // PIECE
    for piece in range(first, stop):
        row, column = piece // per_row, piece % per_row * PIECE
        count = min(PIECE, cols - column)
        start = row * cols + column
        unpack(words, row * row_bytes + column * width // 8, count, width, codes, start)
        if sign:
            extend_signs(codes[start : start + count], sign)


@shared_kernel
def unpack_shared(parts, step, words, cols, row_bytes, width, sign, codes):
    """Unpack all pieces in threads."""
    for task in prange((parts + step - 1) // step):
        first = np.int64(task) * step
        stop = min(parts, first + step)
        unpack_pieces(first, stop, words, cols, row_bytes, width, sign, codes)


unpack_lines = Kernel(unpack_pieces, unpack_shared)


@inner
def extend_signs(codes, sign):
    """Make the fields of two's complement numbers whole bytes."""
    for k in range(codes.size):
        codes[k] = ((int(codes[k]) ^ sign) - sign) & 255


@kernel
def pack_some_across(first, stop, codes, width, words):
    """Pack some lines of words of shape (before, lines, after) from (before, length, after)."""
    per_word, lines = words.itemsize * 8 // width, words.shape[1]
    for line in range(first, stop):
        pack_line_across(codes, line // lines, line % lines, per_word, width, words)


@shared_kernel
def pack_across_shared(parts, step, codes, width, words):
    """Pack all lines in threads."""
    for task in prange((parts + step - 1) // step):
        first = np.int64(task) * step
        pack_some_across(first, min(parts, first + step), codes, width, words)


pack_across = Kernel(pack_some_across, pack_across_shared)


@inner
def pack_line_across(codes, outer, line, per_word, width, words):
    """Pack one line of words, each from codes under one another."""
    word = words.dtype.type
    mask = 2**width - 1
    target = words[outer, line]
    for k in range(target.size):
        target[k] = 0
    for field in range(min(per_word, codes.shape[1] - line * per_word)):
        source = codes[outer, line * per_word + field]
        for k in range(target.size):
            target[k] |= word(word(source[k] & mask) << word(field * width))


@kernel
def unpack_some_across(first, stop, words, width, sign, codes):
    """Unpack some lines of codes of shape (before, length, after) from (before, lines, after)."""
    length = codes.shape[1]
    for line in range(first, stop):
        unpack_line_across(words, line // length, line % length, width, sign, codes)


@shared_kernel
def unpack_across_shared(parts, step, words, width, sign, codes):
    """Unpack all lines in threads."""
    for task in prange((parts + step - 1) // step):
        first = np.int64(task) * step
        unpack_some_across(first, min(parts, first + step), words, width, sign, codes)


unpack_across = Kernel(unpack_some_across, unpack_across_shared)


@inner
def unpack_line_across(words, outer, line, width, sign, codes):
    """Unpack one line of codes from one field of a line of words."""
    per_word = words.itemsize * 8 // width
    source, target = words[outer, line // per_word], codes[outer, line]
    shift, mask = words.dtype.type(line % per_word * width), 2**width - 1
    for k in range(target.size):
        field = int(source[k] >> shift) & mask
        target[k] = ((field ^ sign) - sign) & 255
