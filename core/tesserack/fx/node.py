"""Nodes of a graph: one step of a program each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack.fx._aggregate import map_aggregate
from tesserack.fx._compatibility import compatibility
from tesserack.fx._effects import effects, has_side_effect, is_impure_call
from tesserack.fx._naming import format_arg, qualified_name, shown_target, type_name

if TYPE_CHECKING:
    from tesserack.fx.graph import Graph

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Target = Callable[..., Any] | str
Argument = Any
BaseArgumentTypes = str | int | float | bool | complex | ts.dtype | ts.Tensor | ts.device
base_types = (str, int, float, bool, complex, ts.dtype, ts.Tensor, ts.device, type(ts.strided), type(ts.channels_last))
_legal_ops = dict.fromkeys(("placeholder", "get_attr", "call_function", "call_method", "call_module", "output", "root"))
_side_effectful_functions = effects
_format_arg, _get_qualified_name, _type_repr = format_arg, qualified_name, type_name


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """``fn`` of every node in nested arguments; other values stay."""
    assert callable(fn), "torch.fx.map_arg(a, fn): fn must be a callable"
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, Node) else value)


compatibility(is_backward_compatible=True)(map_arg)
compatibility(is_backward_compatible=True)(map_aggregate)


@compatibility(is_backward_compatible=True)
class Node:
    """One step: ``op`` says of which kind, ``target`` what is called or read, ``args`` and ``kwargs`` with what.

    ``users`` are the nodes that read this one, ``meta`` holds what passes note about it. Of two nodes of a graph the
    one that runs first is less.
    """

    _args: tuple[Any, ...]
    _kwargs: dict[str, Any]
    graph: Graph
    name: str
    op: str
    target: Any
    _prev: Node
    _next: Node

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
        _check_target(graph, name, op, target)
        own = self.__dict__
        own.update(graph=graph, name=name, op=op, target=target, type=return_type, users={}, _input_nodes={}, meta={})
        own.update(_prev=self, _next=self, _order=0.0, _erased=False, _repr_fn=None)
        self._set(args, kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("name", "target", "op") and name in self.__dict__:
            self._renamed(name, value)
        object.__setattr__(self, name, value)

    def _renamed(self, name: str, value: Any) -> None:
        if name == "name":
            owner = getattr(self.graph, "owning_module", None)
            for hook in getattr(owner, "_replace_hooks", ()):
                hook(old=self, new=value, user=None)

    def _set(self, args: Any, kwargs: Any) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        inputs: dict[Node, None] = {}
        self.__dict__["_input_nodes"] = inputs

        def note(value: Any) -> Any:
            if isinstance(value, Node):
                inputs[value] = None
                value.users.setdefault(self)
            return value

        self.__dict__["_args"] = tuple(map_aggregate(tuple(args), note))
        self.__dict__["_kwargs"] = map_aggregate(dict(kwargs), note)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prev": None, "_next": None, "_erased": self._erased}

    # --- arguments ---------------------------------------------------------------------------------------------------

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

    def update_arg(self, idx: int, arg: Any) -> None:
        """Set one positional argument."""
        args = [*self._args]
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Insert a positional argument before the one that is there. ``AssertionError`` if there are fewer."""
        assert 0 <= idx <= len(self._args), "insert_args index must be between 0 and len(self.args)"
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Set one keyword argument."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Read another node where this one read ``old_input``."""
        owner = getattr(self.graph, "owning_module", None)
        for hook in getattr(owner, "_replace_hooks", ()):
            hook(old=old_input, new=new_input.name, user=self)

        def swap(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Have all that read this node read another one; returns those that did.

        ``delete_user_cb`` may leave some out. With ``propagate_meta`` the other one, which must have no ``meta``,
        takes over this one's.
        """
        if propagate_meta:
            assert not replace_with.meta, (
                "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already has "
                ".meta keys"
            )
            replace_with.meta.update(self.meta)
        readers = [*self.users]
        for user in readers:
            if delete_user_cb is None or delete_user_cb(user):
                user.replace_input_with(self, replace_with)
        return [user for user in readers if self not in user._input_nodes]

    def normalized_arguments(
        self,
        root: Any,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:
        """The arguments by the signature of what is called, defaults filled in: a pair ``args``, ``kwargs``; None where
        it is not known. Types of the arguments tell overloads apart.
        """
        from tesserack.fx.operator_schemas import normalize_function, normalize_module

        if self.op == "call_function":
            types = (arg_types, kwarg_types, normalize_to_only_use_kwargs)
            return normalize_function(self.target, self.args, self.kwargs, *types)
        if self.op == "call_module":
            return normalize_module(root, self.target, self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    # --- place -------------------------------------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move ``x`` right before this node, in the same graph."""
        assert self.graph is x.graph, "Attempting to move a Node into a different Graph"
        if x is self:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x
        self.graph._place(x)

    def append(self, x: Node) -> None:
        """Move ``x`` right after this node."""
        if x is not self:
            self._next.prepend(x)

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev
        self._prev = self._next = self

    @property
    def _sort_key(self) -> tuple[float]:
        return (self._order,)

    def __lt__(self, other: Node) -> bool:
        return bool(self._order < other._order)

    def __le__(self, other: Node) -> bool:
        return bool(self._order <= other._order)

    def __gt__(self, other: Node) -> bool:
        return bool(self._order > other._order)

    def __ge__(self, other: Node) -> bool:
        return bool(self._order >= other._order)

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def stack_trace(self) -> str | None:
        """Where the step was traced, if the tracer recorded that."""
        found: str | None = self.meta.get("stack_trace")
        return found

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the step must stay though nothing reads it: it has effects, or, if asked, draws random numbers."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            owner = self.graph.owning_module
            assert owner is not None, "self.graph.owning_module not set for purity check"
            return bool(getattr(owner.get_submodule(self.target), "_is_impure", False))
        return self.op == "call_function" and is_impure_call(self.target, self.kwargs, impure_random)

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate)
            self.graph._graph_namespace._rename_object(self, self.name)

    @staticmethod
    def _pretty_print_target(target: Any) -> str:
        return shown_target(target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """The step as one line. Of a placeholder, if there are ``placeholder_names`` already, None, and it is added to
        them; the type of an output goes into ``maybe_return_typename``.
        """
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_name(self.type)}"
            return f"return {self.args[0]}"
        if self.op == "placeholder" and placeholder_names:
            placeholder_names.append(self.target + (f": {type_name(self.type)}" if self.type else ""))
            return None
        kind = f"{type_name(self.type)} " if self.type is not None else ""
        if include_tensor_metadata and isinstance(self.meta.get("val"), ts.Tensor):
            kind = f'Tensor "{described(self.meta["val"])}"'
        head = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}[target={shown_target(self.target)}]"
        if self.op == "placeholder":
            return head + (f"(default={self.args[0]})" if self.args else "")
        calls = f"(args = {format_arg(self.args)}, kwargs = {format_arg(self.kwargs)})"
        return head if self.op == "get_attr" else head + calls

    def __repr__(self) -> str:
        return str(self._repr_fn(self)) if self._repr_fn is not None else self.name

    def __iter__(self) -> Any:
        raise TypeError("Node: it cannot be iterated over")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def _check_target(graph: Any, name: str, op: str, target: Any) -> None:
    assert op in _legal_ops, f"Node: expected one of {', '.join(_legal_ops)}, got {op!r}"
    kind = ts.typename(target) if hasattr(ts, "typename") else type(target).__name__
    if op == "call_function" and not callable(target):
        raise ValueError(
            f"Node [graph = {graph}, name = '{name}'] target {target} has type {kind} but a Callable is expected"
        )
    if op != "call_function" and not isinstance(target, str):
        raise ValueError(
            f"Node [graph = {graph}, name = '{name}'] target {target} has type {kind} but a str is expected"
        )


_ABBREVIATED = {"bfloat16": "bf16", "bool": "b8", "uint8": "u8", "complex64": "c64", "complex128": "c128"}


def dtype_short(dtype: Any) -> str:
    """A dtype in a few letters: ``f32``, ``i64``, ``b8``."""
    name = str(dtype).rpartition(".")[2]
    return _ABBREVIATED.get(name) or name[0] + "".join(c for c in name if c.isdigit())


def described(x: Any) -> str:
    """A tensor by dtype, sizes, strides and device: ``f32[2, 3][3, 1]cpu``."""
    sizes, strides = ([str(n) for n in found] for found in (x.shape, x.stride()))
    return f"{dtype_short(x.dtype)}[{', '.join(sizes)}][{', '.join(strides)}]{x.device}"
