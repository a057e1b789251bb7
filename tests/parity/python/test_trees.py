"""Trees of containers: paths, specs as text, leaves by their type.

Each is one program for both libraries.
"""

from __future__ import annotations

from collections import defaultdict, namedtuple
from collections.abc import Callable
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


PROGRAMS = [paths_of_trees, specs_of_trees_as_text, specs_of_named_tuples_as_text, trees_by_the_type_of_leaves]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
