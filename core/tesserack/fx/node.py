"""Nodes of a graph: one step of a program each."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tesserack as ts

if TYPE_CHECKING:
    from tesserack.fx.graph import Graph

__all__ = ["Argument", "Node", "Target", "map_aggregate", "map_arg"]

Argument = Any
Target = Any
OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """``fn`` of every value in nested tuples, lists, dicts and slices, in the same structure."""
    if isinstance(a, tuple):
        mapped = tuple(map_aggregate(item, fn) for item in a)
        return type(a)(*mapped) if hasattr(a, "_fields") else mapped
    if isinstance(a, list):
        return [map_aggregate(item, fn) for item in a]
    if isinstance(a, dict):
        return {key: map_aggregate(value, fn) for key, value in a.items()}
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn) for part in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """``fn`` of every node in nested arguments; other values stay."""
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, Node) else value)


# Functions whose calls stay though nothing reads what they return.
_with_effects: set[Any] = {operator.setitem}


def has_side_effect(fn: Any) -> Any:
    """Keep calls of a function where nothing reads what it returns. Also a decorator."""
    _with_effects.add(fn)
    return fn


class Node:
    """One step: ``op`` says of which kind, ``target`` what is called or read, ``args`` and ``kwargs`` with what.

    ``users`` are the nodes that read this one, ``meta`` holds what passes note about it.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        return_type: Any = None,
    ) -> None:
        if op not in OPS:
            raise ValueError(f"Node: expected one of {', '.join(OPS)}, got {op!r}")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self._input_nodes: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._prev = self._next = self
        self._erased = False
        self._set(args, kwargs)

    def _set(self, args: Any, kwargs: Any) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        self._input_nodes = {}

        def note(node: Node) -> Node:
            self._input_nodes[node] = None
            node.users[self] = None
            return node

        self._args: tuple[Any, ...] = map_arg(tuple(args), note)
        self._kwargs: dict[str, Any] = map_arg(dict(kwargs), note)

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments; nodes among them stand for their values."""
        return self._args

    @args.setter
    def args(self, args: tuple[Any, ...]) -> None:
        self._set(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self._set(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return [*self._input_nodes]

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move ``x`` right before this node."""
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Move ``x`` right after this node."""
        self._next.prepend(x)

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev
        self._prev = self._next = self

    def update_arg(self, idx: int, arg: Any) -> None:
        """Set one positional argument."""
        args = [*self._args]
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Insert a positional argument."""
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Set one keyword argument."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Read another node where this one read ``old_input``."""

        def swap(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, **options: Any
    ) -> list[Node]:
        """Have all that read this node read another one; returns those that do."""
        changed = [user for user in [*self.users] if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def is_impure(self) -> bool:
        """Whether the step must stay though nothing reads it."""
        return self.op in ("placeholder", "output") or (self.op == "call_function" and self.target in _with_effects)

    def format_node(self, *args: Any, **kwargs: Any) -> str:
        """The step as one line."""
        if self.op == "output":
            return f"return {self.args[0]}"
        kind = f"{target_name(self.type)} " if self.type is not None else ""
        head = (
            f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}[target={target_name(self.target, True)}]"
        )
        if self.op == "placeholder":
            return head + (f"(default={self.args[0]})" if self.args else "")
        return head if self.op == "get_attr" else f"{head}(args = {_shown(self.args)}, kwargs = {_shown(self.kwargs)})"

    def __repr__(self) -> str:
        return self.name

    def __iter__(self) -> Any:
        raise TypeError("Node: it cannot be iterated over")


def _shown(value: Any) -> str:
    """Arguments with nodes as %name and strings bare."""
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' * (len(value) == 1)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    return str(value)


def target_name(target: Any, with_builtins: bool = False) -> str:
    """A target as text: the name of a function with its module, that of builtins where asked for."""
    if isinstance(target, str):
        return target
    module = getattr(target, "__module__", None)
    name = str(getattr(target, "__qualname__", getattr(target, "__name__", repr(target))))
    if module is None or (module == "builtins" and not with_builtins):
        return name
    return f"{_package_shown(module.removeprefix('_'))}.{name}"


def _package_shown(module: str) -> str:
    """A module as the package through which programs see it: ``torch`` under the import hook."""
    package = repr(ts.float32).partition(".")[0]
    return re.sub(r"^tesserack\b", package, module)
