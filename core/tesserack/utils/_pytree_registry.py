"""Which classes trees are made of, and how each is taken apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple, TypeAlias

from tesserack.utils._pytree_kinds import GetAttrKey

__all__ = [
    "SUPPORTED_NODES",
    "ConstantNode",
    "Context",
    "DumpableContext",
    "FlattenFn",
    "FromDumpableContextFn",
    "NodeDef",
    "PyTree",
    "ToDumpableContextFn",
    "UnflattenFn",
    "forget_specs",
    "is_constant_class",
    "register_constant",
    "register_dataclass",
    "register_pytree_node",
]

Context: TypeAlias = Any
DumpableContext: TypeAlias = Any
FlattenFn: TypeAlias = Callable[[Any], tuple[Iterable[Any], Any]]
UnflattenFn: TypeAlias = Callable[[Iterable[Any], Any], Any]
ToDumpableContextFn: TypeAlias = Callable[[Any], Any]
FromDumpableContextFn: TypeAlias = Callable[[Any], Any]


class NodeDef(NamedTuple):
    """How a class is taken apart and put together."""

    flatten_fn: FlattenFn
    unflatten_fn: UnflattenFn
    flatten_with_keys_fn: FlattenFn | None = None
    serialized_type_name: str | None = None
    to_dumpable_context: Callable[[Any], Any] | None = None
    from_dumpable_context: Callable[[Any], Any] | None = None


SUPPORTED_NODES: dict[type, NodeDef] = {}
PyTree: TypeAlias = Any
forget_specs: list[Callable[[], None]] = []  # called when a class is registered


def register_pytree_node(cls: type, flatten_fn: FlattenFn, unflatten_fn: UnflattenFn, **options: Any) -> None:
    """Have a class taken apart: ``flatten_fn(x)`` gives children and a context, of which ``unflatten_fn`` makes x.

    The option ``flatten_with_keys_fn`` gives (key, child) pairs instead, for :func:`tree_flatten_with_path`;
    ``serialized_type_name`` is the name in :func:`treespec_dumps`, with ``to_dumpable_context`` and
    ``from_dumpable_context`` for contexts that JSON has no form for.
    """
    names = ("flatten_with_keys_fn", "serialized_type_name", "to_dumpable_context", "from_dumpable_context")
    SUPPORTED_NODES[cls] = NodeDef(flatten_fn, unflatten_fn, *(options.get(name) for name in names))
    for forget in forget_specs:
        forget()


# --- classes of fields, and of none --------------------------------------------------------------------------------


def register_dataclass(
    cls: type,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Have a dataclass taken apart into the fields that make it, those that are None left out.

    Args:
        cls: made by its fields; a class that is no dataclass names them.
        field_names: all fields that make it; those of the dataclass unless given.
        drop_field_names: fields of the dataclass that are no part of the tree.
        serialized_type_name: its name in :func:`treespec_dumps`.

    Raises:
        ValueError: if fields are missing or are none of the dataclass, or no names are given for another class.
    """
    if is_dataclass(cls):
        made_of = [field.name for field in fields(cls) if field.init]
        names = made_of if field_names is None else [*field_names]
        if field_names is not None and (differing := {*made_of} - {*(drop_field_names or ())} ^ {*names}):
            raise ValueError(
                "register_dataclass: field_names does not include all dataclass fields: expected those that make "
                f"{cls.__name__}, less drop_field_names; missing or unexpected: {sorted(differing)}"
            )
    elif field_names is None:
        raise ValueError(
            f"register_dataclass: field_names must be specified with a list of all fields used to initialize {cls}, "
            "as it is not a dataclass."
        )
    else:
        names = [*field_names]

    def flatten(obj: Any) -> tuple[list[Any], Any]:
        values = {name: getattr(obj, name) for name in names}
        there = {name: value for name, value in values.items() if value is not None}
        return [*there.values()], [[*there], [name for name in names if name not in there]]

    def flatten_with_keys(obj: Any) -> tuple[list[Any], Any]:
        values, context = flatten(obj)
        return [(GetAttrKey(name), value) for name, value in zip(context[0], values, strict=True)], context

    register_pytree_node(
        cls,
        flatten,
        lambda values, context: cls(**dict(zip(context[0], values, strict=True)), **dict.fromkeys(context[1])),
        flatten_with_keys_fn=flatten_with_keys,
        serialized_type_name=serialized_type_name,
    )


@dataclass(frozen=True)
class ConstantNode:
    """What stands for a constant in a spec."""

    value: Any


_constants: set[type] = set()


def register_constant(cls: type) -> None:
    """Have instances of a class be part of the structure: trees with other ones are other trees.

    ``TypeError`` if the class has no ``__eq__`` or no ``__hash__`` of its own.
    """
    equal: Any = cls.__eq__
    for name, missing in (("__eq__", equal is object.__eq__), ("__hash__", cls.__hash__ is None)):
        if missing:
            raise TypeError(f"register_constant(cls) expects `cls` to have a non-default `{name}` implementation.")

    def flatten(x: Any) -> tuple[list[Any], ConstantNode]:
        return [], ConstantNode(x)

    register_pytree_node(cls, flatten, lambda _, context: context.value, flatten_with_keys_fn=flatten)
    _constants.add(cls)


def is_constant_class(cls: Any) -> bool:
    """Whether :func:`register_constant` was given the class."""
    return isinstance(cls, type) and cls in _constants
