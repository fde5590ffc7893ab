"""Trees: nested dicts, lists, tuples, named tuples and dataclasses. Their leaves have paths.

A path is the names on the way to a leaf, joined by dots: keys, places in a list, names of fields.
Anything that is none of these containers is a leaf. A container that is met again (shared, or part
of itself) is the same container in what is rebuilt.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.errors import SchemeError, cut
from qnumba.params import QParams
from qnumba.qarray import QArray
from qnumba.scheme import Scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_DEPTH = 256
OPAQUE = (QArray, QParams, Scheme)  # leaves, whatever they are made of


def leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Go through the leaves of a tree with their paths. A shared container is entered once."""
    seen: dict[int, Any] = {}  # keeps the objects alive, so that no id is used twice

    def enter(path: tuple[str, ...], node: Any) -> Iterator[tuple[str, Any]]:
        parts = _children(node, path)
        if parts is None:
            yield ".".join(path), node
        elif id(node) not in seen:
            seen[id(node)] = node
            for name, child in parts:
                yield from enter((*path, name), child)

    return enter((), tree)


def rebuild(tree: Any, replace: Callable[[str, Any], Any]) -> Any:
    """Return a tree of the same containers whose leaves are ``replace(path, leaf)``.

    Each leaf object is replaced once, under the first path that leads to it. Mappings that are no
    dict become dicts; dataclasses are copied without calling their ``__init__``.
    """
    made: dict[int, tuple[Any, Any]] = {}  # by id: the node, kept alive, and what it became

    def build(path: tuple[str, ...], node: Any) -> Any:
        if id(node) in made:
            return made[id(node)][1]
        parts = _children(node, path)
        if parts is None:
            new = replace(".".join(path), node)
        elif isinstance(node, tuple):
            children = [build((*path, name), child) for name, child in parts]
            if id(node) in made:  # the tuple holds, further down, itself
                return made[id(node)][1]
            make: Any = type(node)._make if _is_named(node) else type(node)  # type: ignore[attr-defined]
            new = make(children)
        else:
            new = {} if _is_foreign(node) else copy.copy(node)
            made[id(node)] = (node, new)  # before its parts: one of them may be the node itself
            for key, (name, child) in zip(_keys(node), parts, strict=True):
                _put(new, key, build((*path, name), child))
        made[id(node)] = (node, new)
        return new

    return build((), tree)


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array of some library (a NumPy scalar is none)."""
    if isinstance(leaf, (np.generic, type, *OPAQUE)):
        return False
    described = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    protocols = ("__array__", "__array_interface__", "__cuda_array_interface__", "__dlpack__")
    return described and any(hasattr(leaf, name) for name in protocols)


def _children(node: Any, path: tuple[str, ...]) -> list[tuple[str, Any]] | None:
    """Return the parts of a container with their names; None for a leaf.

    Raises
    ------
    SchemeError
        If it is too far down: Python's stack has an end.
    """
    if len(path) > MAX_DEPTH:
        fix = f"nest at most {MAX_DEPTH} containers"
        message = f"{cut('.'.join(path))} is too far down a tree; {fix}"
        raise SchemeError(message, field="params", fix=fix)
    if isinstance(node, Mapping):
        return [(str(key), node[key]) for key in node]
    if _is_named(node):
        return list(zip(node._fields, node, strict=True))
    if isinstance(node, (list, tuple)):
        return [(str(place), part) for place, part in enumerate(node)]
    if _is_dataclass(node):
        return [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node)]
    return None


def _keys(node: Any) -> list[Any]:
    """Return what the parts of a container are stored under."""
    if isinstance(node, Mapping):
        return list(node)
    if isinstance(node, list):
        return list(range(len(node)))
    return [field.name for field in dataclasses.fields(node)]


def _put(node: Any, key: Any, part: Any) -> None:
    if _is_dataclass(node):
        object.__setattr__(node, key, part)  # also where it is frozen
    else:
        node[key] = part


def _is_named(node: Any) -> bool:
    return isinstance(node, tuple) and hasattr(node, "_fields")


def _is_dataclass(node: Any) -> bool:
    plain = dataclasses.is_dataclass(node) and not isinstance(node, type)
    return plain and not isinstance(node, OPAQUE)


def _is_foreign(node: Any) -> bool:
    return isinstance(node, Mapping) and not isinstance(node, dict)
