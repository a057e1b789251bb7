"""Nested tuples, lists and dicts, taken apart into leaves and put together again."""

from __future__ import annotations

import functools
import json
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tesserack._native import Size
from tesserack.utils._pytree_kinds import (
    GetAttrKey,
    KeyEntry,
    KeyPath,
    MappingKey,
    SequenceKey,
    is_namedtuple,
    is_namedtuple_class,
    is_namedtuple_instance,
    is_structseq,
    is_structseq_class,
    is_structseq_instance,
    key_get,
    keystr,
)
from tesserack.utils._pytree_registry import (
    SUPPORTED_NODES,
    Context,
    DumpableContext,
    FlattenFn,
    FromDumpableContextFn,
    NodeDef,
    PyTree,
    ToDumpableContextFn,
    UnflattenFn,
    forget_specs,
    is_constant_class,
    register_constant,
    register_dataclass,
    register_pytree_node,
)

__all__ = [
    "SUPPORTED_NODES",
    "Context",
    "DumpableContext",
    "FlattenFn",
    "FromDumpableContextFn",
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "LeafSpec",
    "MappingKey",
    "NodeDef",
    "PyTree",
    "PyTreeSpec",
    "SequenceKey",
    "ToDumpableContextFn",
    "TreeSpec",
    "UnflattenFn",
    "arg_tree_leaves",
    "is_constant_class",
    "is_namedtuple",
    "is_namedtuple_class",
    "is_namedtuple_instance",
    "is_structseq",
    "is_structseq_class",
    "is_structseq_instance",
    "key_get",
    "keystr",
    "register_constant",
    "register_dataclass",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
    "treespec_dict",
    "treespec_dumps",
    "treespec_leaf",
    "treespec_loads",
    "treespec_pprint",
    "treespec_tuple",
]

_registry = SUPPORTED_NODES
_register_pytree_node = register_pytree_node


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """Give a class of ``namedtuple`` the name that :func:`treespec_dumps` writes for it; it is taken apart anyway."""
    register_pytree_node(
        cls, lambda x: ([*x], None), lambda values, _: cls(*values), serialized_type_name=serialized_type_name
    )


# --- specs as text -------------------------------------------------------------------------------------------------

_BUILTINS: dict[type, str] = {
    **{kind: f"builtins.{kind.__name__}" for kind in (dict, list, tuple)},
    Size: "torch.Size",
    **{kind: f"collections.{kind.__name__}" for kind in (OrderedDict, defaultdict, deque)},
}


def _serialized(kind: type) -> str:
    known = _registry.get(kind)
    name = known.serialized_type_name if known is not None else None
    if name is None and kind not in _BUILTINS:
        named = "call _register_namedtuple" if _is_record(kind) else "update your register_pytree_node call"
        raise NotImplementedError(
            f"treespec_dumps: No registered serialization name for {kind} found. Please {named} with a "
            "`serialized_type_name` kwarg."
        )
    return name or _BUILTINS[kind]


def _as_json(spec: TreeSpec) -> dict[str, Any]:
    if spec.type is None:
        return {"type": None, "context": None, "children_spec": []}
    name, dump = _serialized(spec.type), _registry[spec.type].to_dumpable_context
    if dump is not None:
        context = dump(spec.context)
    elif spec.type is defaultdict:
        factory, keys = spec.context
        context = {"default_factory_module": factory.__module__, "default_factory_name": factory.__qualname__,
                   "dict_context": keys}  # fmt: skip
    else:
        context = json.dumps(spec.context)
    return {"type": name, "context": context, "children_spec": [_as_json(child) for child in spec.children_specs]}


def _of_json(node: Any) -> TreeSpec:
    if node["type"] is None:
        return LeafSpec()
    names = {
        _serialized(kind): kind for kind, how in _registry.items() if how.serialized_type_name or kind in _BUILTINS
    }
    kind = names.get(node["type"])
    if kind is None:
        raise NotImplementedError(f"treespec_loads: Deserializing {node['type']} in pytree is not registered.")
    load, context = _registry[kind].from_dumpable_context, node["context"]
    if load is not None:
        context = load(context)
    elif kind is defaultdict:
        known = {f"builtins.{kind.__name__}": kind for kind in (list, dict, set, tuple, int, float, str, bool)}
        factory = f"{context['default_factory_module']}.{context['default_factory_name']}"
        if factory not in known:
            raise NotImplementedError(f"treespec_loads: expected a factory of builtins, got {factory}")
        context = (known[factory], context["dict_context"])
    else:
        context = json.loads(context)
    return TreeSpec(kind, context, [_of_json(child) for child in node["children_spec"]])


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A spec as JSON, as PyTorch writes it. ``NotImplementedError`` for classes without a name for that.

    >>> treespec_loads(treespec_dumps(tree_structure([1, (2, 3)])))
    TreeSpec(list, None, [*, TreeSpec(tuple, None, [*, *])])
    """
    if protocol not in (None, 1):
        raise ValueError(f"treespec_dumps: Unknown protocol {protocol}. Available protocols: [1]")
    return json.dumps((1, _as_json(treespec)))


@functools.cache
def treespec_loads(serialized: str) -> TreeSpec:
    """The spec of :func:`treespec_dumps`. ``NotImplementedError`` for names that nobody registered."""
    protocol, node = json.loads(serialized)
    if protocol != 1:
        raise ValueError(f"treespec_loads: Unknown protocol {protocol}. Available protocols: [1]")
    return _of_json(node)


forget_specs.append(treespec_loads.cache_clear)


def treespec_pprint(treespec: TreeSpec) -> str:
    """A spec as the tree it builds, with ``*`` for leaves.

    >>> treespec_pprint(tree_structure({"a": 1, "b": [2, 3]}))
    "{'a': *, 'b': [*, *]}"
    """

    class Star:
        def __repr__(self) -> str:
            return "*"

    return repr(tree_unflatten([Star() for _ in range(treespec.num_leaves)], treespec))


def _keys(x: Any) -> tuple[list[Any], list[Any]]:
    return [*x.values()], [*x]


register_pytree_node(dict, _keys, lambda children, keys: dict(zip(keys, children, strict=True)))
register_pytree_node(OrderedDict, _keys, lambda children, keys: OrderedDict(zip(keys, children, strict=True)))
register_pytree_node(
    defaultdict,
    lambda x: ([*x.values()], (x.default_factory, [*x])),
    lambda children, context: defaultdict(context[0], zip(context[1], children, strict=True)),
)
register_pytree_node(list, lambda x: (x, None), lambda children, _: [*children])
register_pytree_node(tuple, lambda x: (x, None), lambda children, _: tuple(children))
register_pytree_node(
    Size,
    lambda x: ([*x], None),
    lambda children, _: Size(children) if all(type(n) is int for n in children) else tuple(children),
)
register_pytree_node(deque, lambda x: (x, x.maxlen), lambda children, length: deque(children, length))


class TreeSpec:
    """How leaves are put together: ``type`` None stands for a leaf."""

    def __init__(self, type: type | None, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_leaves: int = 1 if type is None else sum(child.num_leaves for child in children_specs)

    @property
    def num_children(self) -> int:
        """How many parts there are on this level."""
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        """Whether this stands for a leaf."""
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The leaves put together."""
        return tree_unflatten(leaves, self)

    def __eq__(self, other: object) -> bool:
        mine = (self.type, self.context, self.children_specs)
        return isinstance(other, TreeSpec) and mine == (other.type, other.context, other.children_specs)

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        return f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """That of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


PyTreeSpec = TreeSpec
_LEAF_SPEC = LeafSpec()


def treespec_leaf() -> LeafSpec:
    """The spec of a leaf."""
    return _LEAF_SPEC


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The spec of a tuple, by those of its children. ``ValueError`` of what is no spec."""
    return TreeSpec(tuple, None, _specs("treespec_tuple", [*iterable]))


def _specs(op: str, children: list[Any]) -> list[TreeSpec]:
    for child in children:
        if not isinstance(child, TreeSpec):
            raise ValueError(f"{op}: expected specs of trees (TreeSpec), got {child!r} of {type(child).__name__}")
    return children


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The spec of a dict, by those of its values. ``ValueError`` of what is no spec."""
    children = dict(mapping, **kwargs)
    return TreeSpec(dict, [*children], _specs("treespec_dict", [*children.values()]))


def _is_record(kind: type) -> bool:
    """Whether it is a tuple with names, of Python's ``namedtuple`` or what an operator of several results returns."""
    return issubclass(kind, tuple) and (hasattr(kind, "_fields") or hasattr(kind, "n_sequence_fields"))


def _kind(x: Any) -> Any:
    kind = type(x)
    return tuple if kind not in _registry and _is_record(kind) else kind


_get_node_type = _kind


def _is_leaf(x: Any, is_leaf: Callable[[Any], bool] | None) -> bool:
    return (is_leaf is not None and is_leaf(x)) or _kind(x) not in _registry


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves, and how they are put together.

    >>> leaves, spec = tree_flatten({"a": [1, 2], "b": 3})
    >>> leaves, tree_unflatten([x + 1 for x in leaves], spec)
    ([1, 2, 3], {'a': [2, 3], 'b': 4})
    """
    if _is_leaf(tree, is_leaf):
        return [tree], LeafSpec()
    children, context = _registry[_kind(tree)].flatten_fn(tree)
    named = type(tree) if _is_record(type(tree)) else None
    leaves: list[Any] = []
    specs: list[TreeSpec] = []
    for child in children:
        found, spec = tree_flatten(child, is_leaf)
        leaves += found
        specs.append(spec)
    return leaves, TreeSpec(named or _kind(tree), context, specs)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """Leaves put together. ``ValueError`` unless there are as many as the structure has."""
    given = [*leaves]
    if len(given) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: expected {treespec.num_leaves} leaves, got {len(given)}")
    return _build(iter(given), treespec)


def _build(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    children = [_build(leaves, child) for child in spec.children_specs]
    if spec.type not in _registry and _is_record(spec.type):
        return spec.type(*children) if hasattr(spec.type, "_fields") else spec.type(children)
    return _registry[spec.type].unflatten_fn(children, spec.context)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves."""
    return tree_flatten(tree, is_leaf)[0]


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of a call's arguments."""
    return tree_leaves((args, kwargs))


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """How the leaves are put together."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """``func`` of every leaf, and of the leaves at the same places of further trees, in the same structure."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_flatten(rest, is_leaf)[0] for rest in rests]
    return tree_unflatten([func(*group) for group in zip(leaves, *others, strict=True)], spec)


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Call ``func`` with every leaf; returns the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _is_of(leaf: Any, kinds: Any) -> bool:
    if isinstance(kinds, (type, tuple)):
        return isinstance(leaf, kinds)
    return bool(kinds(leaf))


def tree_map_only(type_or_types_or_pred: Any, func: Any = None, tree: Any = None, is_leaf: Any = None) -> Any:
    """``func`` of the leaves of a type; others stay. With the type alone, a decorator for such functions."""

    def only(function: Any) -> Any:
        return lambda leaf: function(leaf) if _is_of(leaf, type_or_types_or_pred) else leaf

    return only if func is None else tree_map(only(func), tree, is_leaf=is_leaf)


map_only = tree_map_only


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether it holds for every leaf."""
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether it holds for some leaf."""
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf))


def tree_all_only(kinds: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether it holds for every leaf of a type."""
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if _is_of(leaf, kinds))


def tree_any_only(kinds: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether it holds for some leaf of a type."""
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if _is_of(leaf, kinds))


def tree_map_only_(type_or_types_or_pred: Any, func: Any, tree: Any, is_leaf: Any = None) -> Any:
    """``func`` called for the leaves of a type; the tree itself."""
    tree_map_only(type_or_types_or_pred, func, tree, is_leaf)
    return tree


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether it is not taken apart."""
    return _is_leaf(tree, is_leaf)


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """The leaves, one after another."""
    return iter(tree_leaves(tree, is_leaf))


# --- paths ---------------------------------------------------------------------------------------------------------


def _keyed(tree: Any) -> list[tuple[Any, Any]]:
    """The children with their places."""
    node = _registry[_kind(tree)]
    if node.flatten_with_keys_fn is not None:
        return [*node.flatten_with_keys_fn(tree)[0]]
    if isinstance(tree, dict):
        return [(MappingKey(key), child) for key, child in tree.items()]
    if hasattr(type(tree), "_fields"):
        return [(GetAttrKey(name), child) for name, child in zip(tree._fields, tree, strict=True)]
    if isinstance(tree, (list, tuple, deque)):
        return [(SequenceKey(index), child) for index, child in enumerate(tree)]
    raise ValueError(
        f"tree_flatten_with_path: expected classes with known keys, got {type(tree).__name__}; "
        "register it with flatten_with_keys_fn"
    )


def _paths(tree: Any, is_leaf: Any, before: tuple[Any, ...]) -> Iterable[tuple[tuple[Any, ...], Any]]:
    if _is_leaf(tree, is_leaf):
        yield before, tree
        return
    for key, child in _keyed(tree):
        yield from _paths(child, is_leaf, (*before, key))


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """The leaves with their paths, and how they are put together. ``ValueError`` for classes without known keys."""
    return [*_paths(tree, is_leaf, ())], tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves with their paths."""
    return [*_paths(tree, is_leaf, ())]


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """``func(path, leaf, *others)`` of every leaf, in the same structure.

    >>> tree_map_with_path(lambda path, x: f"{keystr(path)}={x}", {"a": [1]})
    {'a': ["['a'][0]=1"]}
    """
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
    return tree_unflatten([func(*pair, *more) for pair, *more in zip(found, *others, strict=True)], spec)
