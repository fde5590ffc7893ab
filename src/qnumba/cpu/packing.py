"""Kernels that pack codes into words and unpack them, along rows or across them.

Codes are bytes here. Along rows a line of words is a stream of bytes; across rows the k-th field
of a word is k rows further down.
"""

from __future__ import annotations

from qnumba.cpu.jit import inner, kernel
from qnumba.cpu.runs import pack, unpack

PIECE = 65536  # codes that are packed at a time: a whole number of bytes


def pieces(rows: int, cols: int) -> tuple[int, int]:
    """Return how many pieces rows have, and how many of them a thread takes at a time."""
    return rows * -(-cols // PIECE), max(1, PIECE // cols)


@kernel
def pack_lines(first, stop, codes, cols, row_bytes, width, words):
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


@kernel
def unpack_lines(first, stop, words, cols, row_bytes, width, sign, codes):
    """Unpack some pieces of rows; ``sign`` is the sign bit of a two's complement field, or 0."""
    per_row = (cols + PIECE - 1) // PIECE
    for piece in range(first, stop):
        row, column = piece // per_row, piece % per_row * PIECE
        count = min(PIECE, cols - column)
        start = row * cols + column
        unpack(words, row * row_bytes + column * width // 8, count, width, codes, start)
        if sign:
            extend_signs(codes[start : start + count], sign)


@inner
def extend_signs(codes, sign):
    """Make the fields of two's complement numbers whole bytes."""
    for k in range(codes.size):
        codes[k] = ((int(codes[k]) ^ sign) - sign) & 255


@kernel
def pack_across(first, stop, codes, width, words):
    """Pack some lines of words of shape (before, lines, after) from (before, length, after)."""
    per_word, lines = words.itemsize * 8 // width, words.shape[1]
    for line in range(first, stop):
        pack_line_across(codes, line // lines, line % lines, per_word, width, words)


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
def unpack_across(first, stop, words, width, sign, codes):
    """Unpack some lines of codes of shape (before, length, after) from (before, lines, after)."""
    length = codes.shape[1]
    for line in range(first, stop):
        unpack_line_across(words, line // length, line % length, width, sign, codes)


@inner
def unpack_line_across(words, outer, line, width, sign, codes):
    """Unpack one line of codes from one field of a line of words."""
    per_word = words.itemsize * 8 // width
    source, target = words[outer, line // per_word], codes[outer, line]
    shift, mask = words.dtype.type(line % per_word * width), 2**width - 1
    for k in range(target.size):
        field = int(source[k] >> shift) & mask
        target[k] = ((field ^ sign) - sign) & 255
