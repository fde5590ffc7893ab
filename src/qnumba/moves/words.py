"""Codes in words: which axis words run along, and parts of them unpacked and packed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.formats import STORES, VALUES
from qnumba.inputs import backend
from qnumba.layout import plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qnumba.moves.held import Parts
    from qnumba.scheme import Scheme


def pack(codes: NDArray[Any], scheme: Scheme, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the words of codes."""
    layout = plan(scheme, shape)
    words = np.empty(layout.words_shape, layout.words_dtype)
    backend().pack(np.asarray(codes.reshape(shape), order="C"), layout, words)
    return words


def unpack(words: NDArray[Any], scheme: Scheme, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the codes in words of a scheme's store, whatever its blocks are."""
    layout = plan(_without_block(scheme), shape)
    codes = np.empty(shape, layout.code_dtype)
    backend().unpack(np.asarray(words.reshape(layout.words_shape), order="C"), layout, codes)
    return codes


def codes_of(parts: Parts) -> NDArray[Any]:
    """Return one code per element."""
    if parts.scheme.store == "native":
        return parts.words
    return unpack(parts.words, parts.scheme, parts.shape)


@lru_cache
def _without_block(scheme: Scheme) -> Scheme:
    return scheme.replace(block=None, block_scale=None, tensor_scale=None)


def per_word(scheme: Scheme) -> int:
    """Return how many codes a word holds; 1 in the native store."""
    return max(STORES[scheme.store].word_bits // VALUES[scheme.value].bits, 1)


def packed_axis(parts: Parts) -> int | None:
    """Return the axis words run along, or None where every word is one code of its own."""
    if per_word(parts.scheme) == 1 or not parts.shape:
        return None
    return len(parts.shape) - 1 - parts.scheme.pack_axis
