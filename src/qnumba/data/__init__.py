"""Arrays that come with the package, for demos, tests and first steps."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def attention_weight() -> NDArray[np.float32]:
    """Load the weights of one attention projection of a small language model.

    Returns
    -------
    numpy.ndarray
        float32, shape (384, 384): the query projection of the first layer of the sentence encoder
        all-MiniLM-L6-v2, stored in the package as float16. ``attention_weight.txt`` beside it
        tells the source and the licence (Apache-2.0).

    Examples
    --------
    >>> attention_weight().shape
    (384, 384)
    """
    with files(__package__).joinpath("attention_weight.npy").open("rb") as file:
        weight: NDArray[np.float16] = np.load(file, allow_pickle=False)
    return weight.astype(np.float32)
