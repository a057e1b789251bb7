"""Taking values apart as a known structure says, with dicts by its keys: of arguments whose structure was traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack.utils import _pytree
from tesserack.utils._pytree import TreeSpec, is_structseq_class

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]

FlattenFuncSpec = Callable[[Any, TreeSpec], list[Any]]
FlattenFuncExactMatchSpec = Callable[[Any, TreeSpec], bool]
SUPPORTED_NODES: dict[type, FlattenFuncSpec] = {}
SUPPORTED_NODES_EXACT_MATCH: dict[type, FlattenFuncExactMatchSpec | None] = {}


def register_pytree_flatten_spec(
    cls: type, flatten_fn_spec: FlattenFuncSpec, flatten_fn_exact_match_spec: FlattenFuncExactMatchSpec | None = None
) -> None:
    """Have values of a class taken apart by a function of the value and its structure."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The leaves of a value that has a structure, or a larger one.

    >>> from tesserack.utils._pytree import tree_structure
    >>> tree_flatten_spec([(1, 2), 3], tree_structure([(0, 0), 0]))
    [1, 2, 3]
    """
    found: list[Any] = []
    _take_apart(pytree, spec, found)
    return found


def _take_apart(pytree: Any, spec: TreeSpec, found: list[Any]) -> None:
    kind = spec.type
    if kind is None:
        found.append(pytree)
        return
    for part, child in zip(_parts(pytree, spec), spec.children_specs, strict=False):
        if child.type is None:
            found.append(part)
        else:
            _take_apart(part, child, found)


def _parts(pytree: Any, spec: TreeSpec) -> list[Any]:
    """A value's parts, as its class says."""
    kind: Any = spec.type
    if kind in SUPPORTED_NODES:
        return SUPPORTED_NODES[kind](pytree, spec)
    if hasattr(kind, "_fields") or is_structseq_class(kind):  # a record, by the places of its fields
        return _by_place(pytree, spec)
    if kind in _pytree.SUPPORTED_NODES and type(pytree) is kind:
        return [*_pytree.SUPPORTED_NODES[kind].flatten_fn(pytree)[0]]
    raise RuntimeError(
        f"{type(pytree)} does not have a flatten_fn_spec associated with it. Please register one with "
        "torch.fx._pytree.register_pytree_flatten_spec.  If you have serialized your model, make sure that any "
        "custom pytrees have been registered before loading it."
    )


def _by_place(value: Any, spec: TreeSpec) -> list[Any]:
    return [value[k] for k in range(spec.num_children)]


register_pytree_flatten_spec(dict, lambda value, spec: [value[key] for key in spec.context])
register_pytree_flatten_spec(list, _by_place, lambda value, spec: len(value) == spec.num_children)
register_pytree_flatten_spec(tuple, _by_place, lambda value, spec: len(value) == spec.num_children)
