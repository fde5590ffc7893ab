"""Kernels that pack codes into words and unpack them, along rows or across them.

Codes are bytes here. Along rows a line of words is a stream of bytes; across rows the k-th field
of a word is k rows further down.
"""

from __future__ import annotations

from numba import prange

from qnumba.cpu.jit import inner, kernel
from qnumba.cpu.runs import pack, unpack

PIECE = 65536  # codes that are packed at a time: a whole number of bytes


@kernel
def pack_lines(threads, codes, rows, cols, row_bytes, width, words):
    """Pack rows of codes; the last words of a row are filled up with zeros."""
    pieces = (cols + PIECE - 1) // PIECE
    per_task = max(1, PIECE // cols)
    if not threads:
        pack_pieces(0, rows * pieces, pieces, codes, cols, row_bytes, width, words)
        return
    for task in prange((rows * pieces + per_task - 1) // per_task):
        first = task * per_task
        stop = min(rows * pieces, first + per_task)
        pack_pieces(first, stop, pieces, codes, cols, row_bytes, width, words)


@inner
def pack_pieces(first, stop, pieces, codes, cols, row_bytes, width, words):
    """Pack some pieces of rows."""
    for piece in range(first, stop):
        row, column = piece // pieces, piece % pieces * PIECE
        count = min(PIECE, cols - column)
        line = row * row_bytes
        pack(codes, row * cols + column, count, width, words, line + column * width // 8)
        if column + count == cols:
            for k in range(line + (cols * width + 7) // 8, line + row_bytes):
                words[k] = 0


@kernel
def unpack_lines(threads, words, rows, cols, row_bytes, width, sign, codes):
    """Unpack rows of codes; ``sign`` is the sign bit of a two's complement field, or 0."""
    pieces = (cols + PIECE - 1) // PIECE
    per_task = max(1, PIECE // cols)
    if not threads:
        unpack_pieces(0, rows * pieces, pieces, words, cols, row_bytes, width, sign, codes)
        return
    for task in prange((rows * pieces + per_task - 1) // per_task):
        first = task * per_task
        stop = min(rows * pieces, first + per_task)
        unpack_pieces(first, stop, pieces, words, cols, row_bytes, width, sign, codes)


@inner
def unpack_pieces(first, stop, pieces, words, cols, row_bytes, width, sign, codes):
    """Unpack some pieces of rows."""
    for piece in range(first, stop):
        row, column = piece // pieces, piece % pieces * PIECE
        count = min(PIECE, cols - column)
        start = row * cols + column
        unpack(words, row * row_bytes + column * width // 8, count, width, codes, start)
        if sign:
            extend_signs(codes[start : start + count], sign)


@inner
def extend_signs(codes, sign):
    """Make the fields of two's complement numbers whole bytes."""
    for k in range(codes.size):
        codes[k] = (codes[k] ^ sign) - sign


@kernel
def pack_across(threads, codes, width, words):
    """Pack codes of shape (before, length, after) into words of shape (before, lines, after)."""
    per_word = words.itemsize * 8 // width
    before, lines = words.shape[0], words.shape[1]
    if not threads:
        for line in range(before * lines):
            pack_line_across(codes, line // lines, line % lines, per_word, width, words)
        return
    for line in prange(before * lines):
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
def unpack_across(threads, words, width, sign, codes):
    """Unpack words of shape (before, lines, after) into codes of shape (before, length, after)."""
    before, length = codes.shape[0], codes.shape[1]
    if not threads:
        for line in range(before * length):
            unpack_line_across(words, line // length, line % length, width, sign, codes)
        return
    for line in prange(before * length):
        unpack_line_across(words, line // length, line % length, width, sign, codes)


@inner
def unpack_line_across(words, outer, line, width, sign, codes):
    """Unpack one line of codes from one field of a line of words."""
    per_word = words.itemsize * 8 // width
    source, target = words[outer, line // per_word], codes[outer, line]
    shift, mask = words.dtype.type(line % per_word * width), 2**width - 1
    for k in range(target.size):
        target[k] = (((source[k] >> shift) & mask) ^ sign) - sign
