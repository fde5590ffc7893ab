"""A tree of every kind of container."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from qnumba.tree.walk import leaves

RNG = np.random.default_rng(3)


def normal(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class Layer:
    weight: Any
    bias: Any = None


@dataclass
class Model:
    layers: list
    name: str = "model"
    cache: dict = field(default_factory=dict)

    def __post_init__(self):
        if not isinstance(self.layers, list):
            raise TypeError(self.layers)


def model():
    return Model(
        layers=[Layer(normal(8, 32), normal(10)), Layer(normal(4, 32)), (normal(3, 3), None)],
        cache={"pair": Pair(normal(6, 16), "text"), "step": 3, "ids": np.arange(5), 7: 2.5},
    )


PATHS = [
    "layers.0.weight",
    "layers.0.bias",
    "layers.1.weight",
    "layers.1.bias",
    "layers.2.0",
    "layers.2.1",
    "name",
    "cache.pair.left",
    "cache.pair.right",
    "cache.step",
    "cache.ids",
    "cache.7",
]


def by_path(tree):
    return dict(leaves(tree))
