"""Where things are: threads, elements, blocks and words, in integers, for any plan."""

from __future__ import annotations

import numpy as np
from numba import cuda, int32, int64
from numba.extending import register_jitable


@register_jitable
def thread_index():
    """Return the number of this thread in the launch."""
    return int64(cuda.blockIdx.x) * int64(cuda.blockDim.x) + int64(cuda.threadIdx.x)


@register_jitable
def scale_index(flat, geometry):
    """Return the flat index of the scale of an element."""
    extents, steps, cols, block_cols = geometry
    row = flat // cols
    blocks = (cols + block_cols - 1) // block_cols
    index = (flat - row * cols) // block_cols
    for axis in range(4, -1, -1):
        above = row // extents[axis]
        index += (row - above * extents[axis]) // steps[axis] * blocks
        blocks *= (extents[axis] + steps[axis] - 1) // steps[axis]
        row = above
    return index


@register_jitable
def corner_of(block, geometry):
    """Return where a block starts on every axis, and how far it reaches, the columns last."""
    extents, steps, cols, block_cols = geometry
    blocks = (cols + block_cols - 1) // block_cols
    above = block // blocks
    start = (block - above * blocks) * block_cols
    starts, reach = (start,), (min(block_cols, cols - start),)
    s4, r4, above = along(above, extents[4], steps[4])
    s3, r3, above = along(above, extents[3], steps[3])
    s2, r2, above = along(above, extents[2], steps[2])
    s1, r1, above = along(above, extents[1], steps[1])
    s0, r0, above = along(above, extents[0], steps[0])
    return (s0, s1, s2, s3, s4, *starts), (r0, r1, r2, r3, r4, *reach)


@register_jitable
def along(block, extent, step):
    """Return the start and reach of a block on one axis, and the block above."""
    blocks = (extent + step - 1) // step
    above = block // blocks
    start = (block - above * blocks) * step
    return start, min(step, extent - start), above


@register_jitable
def element_of(place, starts, reach, geometry):
    """Return the flat index of the element at a place of a block, counted in row-major order."""
    extents, _, cols, _ = geometry
    above = place // reach[5]
    flat = starts[5] + place - above * reach[5]
    stride = cols
    for axis in range(4, -1, -1):
        place = above
        above = place // reach[axis]
        flat += (starts[axis] + place - above * reach[axis]) * stride
        stride *= extents[axis]
    return flat


@register_jitable
def lines_of(packing):
    """Words along the packed axis."""
    _, length, _, per_word, _, _ = packing
    return (length + per_word - 1) // per_word


@register_jitable
def first_in_word(word, packing):
    """Flat index of the first element of a word, and how many elements it holds."""
    _, length, after, per_word, _, _ = packing
    above = word // after
    outer = above // lines_of(packing)
    place = (above - outer * lines_of(packing)) * per_word
    flat = (outer * length + place) * after + word - above * after
    return flat, min(per_word, length - place)


@register_jitable
def field_of(words, flat, packing, code_bits):
    """Return the bits of one code."""
    _, length, after, per_word, word_bytes, _ = packing
    above = flat // after
    outer = above // length
    place = above - outer * length
    line = place // per_word
    word = (outer * lines_of(packing) + line) * after + flat - above * after
    bit = (place - line * per_word) * code_bits
    byte = int32(words[word * word_bytes + (bit >> 3)])
    return (byte >> int32(bit & 7)) & ((int32(1) << int32(code_bits)) - 1)


@register_jitable
def put_word(words, word, bits, word_bytes):
    """Write a word byte by byte: it may lie at any address."""
    for byte in range(word_bytes):
        words[word * word_bytes + byte] = np.uint8((bits >> (8 * byte)) & 255)
