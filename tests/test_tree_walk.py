"""Containers of trees: they stay what they are, shared where shared, and are not changed."""

from __future__ import annotations

import collections
import json
import pickle
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qnumba as qn
from qnumba.tree import dequantize_tree, quantize_tree, summarize_tree
from qnumba.tree.walk import leaves, rebuild
from support import assert_same_bits
from trees import PATHS, Layer, Model, Pair, by_path, model, normal

# --- containers


def test_paths_are_names_joined_by_dots():
    assert [path for path, _ in leaves(model())] == PATHS
    assert list(leaves(5)) == [("", 5)]
    assert list(leaves({})) == []


def test_everything_of_a_model_is_in_its_place():
    tree = model()
    before = pickle.dumps(tree)
    quantized = quantize_tree(tree, "int8")
    assert pickle.dumps(tree) == before
    assert type(quantized) is Model
    assert type(quantized.layers[0]) is Layer
    assert type(quantized.cache["pair"]) is Pair
    given_, found = by_path(tree), by_path(quantized)
    assert list(found) == PATHS
    for path, leaf in given_.items():
        if isinstance(leaf, np.ndarray) and leaf.dtype == np.float32:
            assert found[path] == qn.quantize(leaf, "int8")
        else:
            assert found[path] is leaf
    back = dequantize_tree(quantized)
    for path, leaf in by_path(back).items():
        if isinstance(found[path], qn.QArray):
            assert_same_bits(leaf, found[path].dequantize())
        else:
            assert leaf is found[path]


def test_a_tree_without_end_is_refused():
    tree: Any = normal(4, 16)
    for _ in range(100):
        tree = ({"a": [tree]},) if isinstance(tree, dict) else {"a": tree}
    assert len(list(leaves(quantize_tree(tree, "int8")))) == 1
    for wrap in (lambda part: [part], lambda part: {"a": part}, lambda part: (part,)):
        deep: Any = 1
        for _ in range(3000):
            deep = wrap(deep)
        for function in (quantize_tree, summarize_tree):
            with pytest.raises(qn.SchemeError, match="nest at most 256"):
                function(deep, "int8")


TREES = st.recursive(
    st.sampled_from([None, 1, "x", np.ones(3, np.float32), np.arange(3), np.float32(2)]),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.lists(parts, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), parts, max_size=3),
        st.builds(Pair, parts, parts),
        st.builds(Layer, parts, parts),
    ),
    max_leaves=12,
)


def structure(tree):
    """Return a tree's containers with the kind of each leaf."""
    kinds = rebuild(tree, lambda _, leaf: type(leaf).__name__)
    return json.dumps(kinds, default=lambda thing: [thing.weight, thing.bias])


@given(TREES)
def test_containers_stay_what_they_are(tree):
    quantized = quantize_tree(tree, "int8")
    assert structure(dequantize_tree(quantized)) == structure(tree)
    for (path, leaf), (other, found) in zip(leaves(tree), leaves(quantized), strict=True):
        assert path == other
        floats = isinstance(leaf, np.ndarray) and leaf.dtype == np.float32
        assert isinstance(found, qn.QArray) if floats else found is leaf


def test_a_tree_may_be_one_array():
    x = normal(4)
    q = quantize_tree(x, "int8")
    assert q == qn.quantize(x, "int8")
    assert_same_bits(dequantize_tree(q), q.dequantize())
    assert quantize_tree(None, "int8") is None
    assert len(summarize_tree(x, "int8")) == 1


def test_kinds_of_dicts_and_lists():
    class Names(list):
        pass

    ordered = collections.OrderedDict(b=normal(2), a=normal(2))
    default = collections.defaultdict(list, x=normal(2))
    tree = [ordered, default, Names([normal(2)]), MappingProxyType({"w": normal(2)})]
    found = quantize_tree(tree, "int8")
    assert [type(part) for part in found] == [type(ordered), type(default), Names, dict]
    assert list(found[0]) == ["b", "a"]
    assert found[1]["new"] == []
    assert "new" not in default


def test_a_state_dict_has_its_keys_as_paths():
    state = {"encoder.0.weight": normal(4, 4), "encoder.0.bias": normal(4)}
    found = quantize_tree(state, "int8", include="encoder.*.weight")
    assert [type(leaf) for leaf in found.values()] == [qn.QArray, np.ndarray]


def test_a_shared_array_becomes_one_qarray():
    x = normal(4, 4)
    tree = {"embed": x, "head": {"weight": x}, "other": x.copy()}
    found = quantize_tree(tree, {"embed": "int8", "*": "int4"})
    assert found["embed"] is found["head"]["weight"]
    assert found["embed"].scheme == qn.PRESETS["int8"]
    assert found["other"].scheme == qn.PRESETS["int4"]
    back = dequantize_tree(found)
    assert back["embed"] is back["head"]["weight"]
    rows = summarize_tree(tree, "int8").rows
    assert rows[1].reason == "the same as embed"
    assert summarize_tree(tree, "int8").nbytes == 2 * x.nbytes


def test_a_shared_container_stays_shared():
    layer = {"w": normal(4)}
    found = quantize_tree([layer, layer, (layer,)], "int8")
    assert found[0] is found[1] is found[2][0]
    assert len(summarize_tree([layer, layer], "int8")) == 1


def test_cycles_stay_cycles():
    tree: dict[str, Any] = {"w": normal(4), "list": []}
    tree["self"] = tree
    loop = (tree["list"], normal(2))
    tree["list"].append(loop)
    node = Model(layers=[])
    node.layers.append(node)
    tree["node"] = node
    found = quantize_tree(tree, "int8")
    assert found["self"] is found
    assert isinstance(found["w"], qn.QArray)
    assert isinstance(found["list"], list)
    inner = found["list"][0]
    assert isinstance(inner, tuple)
    assert inner[0] is found["list"]
    assert isinstance(inner[1], qn.QArray)
    assert found["node"].layers[0] is found["node"]
    assert dequantize_tree(found)["self"]["self"]["w"].shape == (4,)
    assert [row.path for row in summarize_tree(tree, "int8")] == ["w", "list.0.1"]


def test_mappings_that_make_arrays_on_demand():
    class Lazy(collections.abc.Mapping):
        def __getitem__(self, key):
            return np.full((2, 2), float(key), np.float32)

        def __iter__(self):
            return iter("12345")

        def __len__(self):
            return 5

    found = quantize_tree(Lazy(), "int8")
    assert [float(q.dequantize().max()) for q in found.values()] == [1, 2, 3, 4, 5]
    assert not any("same" in row.reason for row in summarize_tree(Lazy(), "int8"))


def test_qparams_and_schemes_are_leaves():
    params = qn.calibrate(normal(4), "int8")
    tree = {"params": params, "scheme": qn.PRESETS["int8"]}
    assert quantize_tree(tree, "int8")["params"] is params
    assert len(summarize_tree(tree, "int8")) == 0
