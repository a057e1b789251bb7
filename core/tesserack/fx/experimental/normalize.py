"""Calls in one form: arguments by name, and operators instead of the functions of that name."""

from __future__ import annotations

import operator
from typing import Any, ClassVar

import tesserack as ts
from tesserack.fx.experimental.schema_type_annotation import AnnotateTypesWithSchema
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.interpreter import Transformer
from tesserack.fx.node import Node, map_aggregate
from tesserack.fx.operator_schemas import create_type_hint, normalize_function, normalize_module
from tesserack.fx.proxy import Proxy

__all__ = ["NormalizeArgs", "NormalizeOperators"]


class NormalizeArgs(Transformer):
    """Writes calls of functions and layers with all arguments, those with defaults too, by name if asked.

    Types that ``ShapeProp`` has noted tell overloads apart.

    >>> import tesserack as ts
    >>> from tesserack import fx
    >>> traced = fx.symbolic_trace(lambda x: ts.relu(x))
    >>> [node.kwargs for node in NormalizeArgs(traced).transform().graph.nodes][1]
    {'input': x}
    """

    def __init__(self, module: GraphModule, normalize_to_only_use_kwargs: bool = True) -> None:
        super().__init__(module)
        self.node_map: dict[Proxy, Node] = {}
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs

    def run_node(self, n: Node) -> Any:
        """A step, written so."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)

        def kind(value: Any) -> Any:
            return value.meta.get("type") if isinstance(value, Node) else type(value)

        if n.op == "call_function":
            kinds = tuple(create_type_hint(item) for item in map_aggregate(n.args, kind))
            named = {name: kind(value) for name, value in n.kwargs.items()}
            out = self.call_function(n.target, args, kwargs, kinds, named)
        else:
            out = super().run_node(n)
        if n.op != "output":
            self.node_map[out] = n
            out.node.meta, out.node.type = n.meta, n.type
        return out

    def call_function(self, target: Any, args: Any, kwargs: Any, arg_types: Any = None, kwarg_types: Any = None) -> Any:
        """A call of a function, with all its arguments."""
        found = normalize_function(target, args, kwargs, arg_types, kwarg_types, self.normalize_to_only_use_kwargs)
        if found is None:
            return super().call_function(target, args, kwargs)
        return self.tracer.create_proxy("call_function", target, *found)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a layer, with all its arguments."""
        found = normalize_module(self.module, target, args, kwargs, self.normalize_to_only_use_kwargs)
        return super().call_module(target, *(found if found is not None else (args, kwargs)))


class NormalizeOperators(AnnotateTypesWithSchema):
    """Writes ``torch.add(x, y)`` and its like as operators: ``x + y``."""

    binary_magic_method_remap: ClassVar[dict[Any, Any]] = {
        ts.add: operator.add, ts.mul: operator.mul, ts.sub: operator.sub, ts.div: operator.truediv,
        ts.floor_divide: operator.floordiv, ts.remainder: operator.mod, ts.eq: operator.eq, ts.ne: operator.ne,
        ts.lt: operator.lt, ts.le: operator.le, ts.gt: operator.gt, ts.ge: operator.ge,
    }  # fmt: skip

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a function, as an operator where it is one of two operands."""
        form = self.binary_magic_method_remap.get(target) if callable(target) else None
        if form is not None and len(args) == 2 and not kwargs:
            return super().call_function(form, args, {})
        return super().call_function(target, args, kwargs)
