"""Trees of containers: paths, specs as text, leaves by their type.

Each is one program for both libraries.
"""

from __future__ import annotations

import time
from collections import defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from outcomes import error_of


def paths_of_trees(m: Any) -> Any:
    tree = m.utils._pytree
    nested = {"a": [1, (2, {"b": 3})], "c": namedtuple("Pair", "x y")(4, None)}
    paths = [(tree.keystr(path), leaf) for path, leaf in tree.tree_flatten_with_path(nested)[0]]
    mapped = tree.tree_map_with_path(lambda path, x, y: (len(path), x + y), {"a": [1, 2]}, {"a": [3, 4]})
    return [paths, mapped, repr(tree.SequenceKey(0))]


def specs_of_trees_as_text(m: Any) -> Any:
    tree = m.utils._pytree
    values = {"a": [1, (2, 3)], "b": None, "c": defaultdict(list, x=[1])}
    spec = tree.tree_structure(values)
    text = tree.treespec_dumps(spec)
    bad = [error_of(lambda t=t: tree.treespec_loads(t)) for t in ("[7, {}]", text.replace("builtins.list", "os.list"))]
    back = tree.treespec_loads(text) == spec
    return [text, back, tree.treespec_pprint(tree.tree_structure([1, (2, {"k": 3})])), bad]


def trees_by_the_type_of_leaves(m: Any) -> Any:
    tree = m.utils._pytree
    nested = {"a": [1, 2.5], "b": (3, "x")}
    seen: list[Any] = []
    tree.tree_map_only_(int, seen.append, nested)
    answers = [tree.tree_all_only(int, lambda n: n > 0, nested), tree.tree_any_only(float, lambda n: n > 9, nested)]
    return [seen, answers, [*tree.tree_iter(nested)], tree.tree_is_leaf([1]), tree.tree_is_leaf(1)]


def specs_of_named_tuples_as_text(m: Any) -> Any:
    tree = m.utils._pytree
    kind = namedtuple("Point", "x y")
    refused = error_of(lambda: tree.treespec_dumps(tree.tree_structure([kind(1, 2)])))
    tree._register_namedtuple(kind, serialized_type_name=f"of_{m.__name__}.Point")
    spec = tree.tree_structure({"p": kind(1, (2, 3))})
    back = tree.treespec_loads(tree.treespec_dumps(spec))
    point = tree.tree_unflatten([4, 5, 6], back)["p"]
    return [refused, back == spec, type(point) is kind, point]


@dataclass
class Point:
    x: Any
    y: Any = None
    label: str = "p"


@dataclass(frozen=True)
class Setting:
    name: str


class Pair:
    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right


def classes_of_fields(m: Any) -> Any:
    tree = m.utils._pytree
    bad = [
        error_of(lambda: tree.register_dataclass(Pair))[0],
        error_of(lambda: tree.register_dataclass(Point, field_names=["x"]))[0],
        error_of(lambda: tree.register_constant(Pair))[0],
    ]
    tree.register_dataclass(Point, field_names=["x", "y"], drop_field_names=["label"])
    tree.register_dataclass(Pair, field_names=["left", "right"])
    tree.register_constant(Setting)
    made = tree.tree_map(lambda v: v + 1, Point(1, label="q"))
    pair = tree.tree_map(lambda v: v * 2, Pair([1, 2], Point(3, 4)))
    leaves, spec = tree.tree_flatten((Setting("a"), 1))
    others = [spec == tree.tree_structure((Setting(name), 2)) for name in "ab"]
    paths = [(tree.keystr(path), leaf) for path, leaf in tree.tree_leaves_with_path([Point(1, {"k": 2})])]
    return [
        bad, made, vars(pair)["left"], pair.right, leaves, others, tree.tree_unflatten([5], spec)[0], paths,
        tree.is_constant_class(Setting), tree.is_constant_class(Point), tree.arg_tree_leaves(1, [2], k={"a": 3}),
    ]  # fmt: skip


def tuples_with_names(m: Any) -> Any:
    tree = m.utils._pytree
    kind = namedtuple("Kind", "a b")
    values = [kind(1, 2), kind, (1, 2), tuple, time.gmtime(0), time.struct_time, m.zeros(2).max(0), 3]
    asked = ["is_namedtuple", "is_namedtuple_instance", "is_structseq", "is_structseq_class", "is_structseq_instance"]
    found = [[getattr(tree, name)(value) for value in values] for name in asked]
    nested = {"a": [kind(1, 2), 5]}
    path = tree.tree_flatten_with_path(nested)[0][1][0]
    specs = tree.treespec_tuple([tree.treespec_leaf(), tree.treespec_dict(k=tree.treespec_leaf())])
    bad = [error_of(lambda: tree.treespec_tuple([1]))[0], error_of(lambda: tree.treespec_dict(k=1))[0]]
    return [found, tree.key_get(nested, path), specs == tree.tree_structure((1, {"k": 2})), bad]


PROGRAMS = [
    paths_of_trees,
    specs_of_trees_as_text,
    specs_of_named_tuples_as_text,
    trees_by_the_type_of_leaves,
    classes_of_fields,
    tuples_with_names,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
