"""What does not depend on arguments, computed once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import nn
from tesserack.fx._symbolic_trace import symbolic_trace
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_arg
from tesserack.fx.proxy import Proxy
from tesserack.nn.modules.module import Module

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


class FoldedGraphModule(GraphModule):
    """A module that computes its constants at the first call, or by :meth:`run_folding`, and keeps them."""

    def __init__(
        self,
        root: Module,
        graph: Graph,
        const_subgraph: Graph | None = None,
        fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cuda",
    ) -> None:
        super().__init__(root, graph)
        constants = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.const_subgraph_module = constants
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self) -> None:
        """Compute the constants. ``AssertionError`` if they are."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        assert not self.has_folding_been_run, "Folding has already been run"
        self.has_folding_been_run = True
        found = self.const_subgraph_module()
        made = nn.ParameterList([self._kept(x) for x in found]) if isinstance(found, tuple) else self._kept(found)
        setattr(self, self.fx_const_folded_attrs_name, made)

    def _kept(self, value: Any) -> Any:
        if isinstance(value, int):
            return nn.Parameter(ts.tensor([float(value)], device=self.device_for_folded_attrs), requires_grad=False)
        return nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad)


def get_unique_attr_name_in_module(mod_traced: GraphModule, name: str) -> str:
    """A name like the one given that the module has no attribute of."""
    name = re.sub("[^0-9a-zA-Z_]+", "_", name)
    name = f"_{name}" if name[0].isdigit() else name
    while hasattr(mod_traced, name):
        found = re.match(r"(.*)_(\d+)$", name)
        name = f"{name}_1" if found is None else f"{found[1]}_{int(found[2]) + 1}"
    return name


def split_const_subgraphs(
    module: Module,
    skip_folding_node_fn: Callable[[Node], bool] | None = None,
    device_for_folded_attrs: str = "cpu",
) -> FoldedGraphModule:
    """A module that computes what depends on its attributes alone once. Steps with effects, and those for which
    ``skip_folding_node_fn`` holds, are left alone.

    >>> import tesserack as ts
    >>> class Doubled(nn.Linear):
    ...     def forward(self, x):
    ...         return ts.mm(x, self.weight + self.weight)
    >>> folded = split_const_subgraphs(symbolic_trace(Doubled(2, 2)))
    >>> [node.op for node in folded.graph.nodes]
    ['placeholder', 'get_attr', 'call_function', 'output']
    """
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    folding = _Folding(traced, skip_folding_node_fn)
    if not folding.results:
        return FoldedGraphModule(traced, traced.graph)
    return folding.split(device_for_folded_attrs)


class _Folding:
    """Which steps are constants, and which of them others read."""

    def __init__(self, traced: GraphModule, skip: Callable[[Node], bool] | None) -> None:
        self.traced = traced
        self.constant: dict[Node, None] = {}
        for node in traced.graph.nodes:
            if node.op in ("placeholder", "output") or (node.op != "get_attr" and not self._of_constants(node)):
                continue
            if not (skip is not None and skip(node)) and not node.is_impure() and not self._has_effects(node):
                self.constant[node] = None
        computed = [node for node in self.constant if node.op != "get_attr"]
        self.results = [node for node in computed if any(user not in self.constant for user in node.users)]

    def _of_constants(self, node: Node) -> bool:
        return all(read in self.constant for read in node.all_input_nodes)

    def _has_effects(self, node: Node) -> bool:
        inner: Any = self.traced.get_submodule(node.target) if node.op == "call_module" else None
        return isinstance(inner, GraphModule) and any(
            step.op == "call_function" and step.is_impure() for step in inner.graph.nodes
        )

    def split(self, device: str) -> FoldedGraphModule:
        """The module, whose graph reads the constants, and the graph that computes them."""
        name = get_unique_attr_name_in_module(self.traced, "_FX_CONST_FOLDED_ATTRS")
        first, rest = Graph(), Graph()
        inside: dict[Node, Node] = {}
        for node in self.constant:
            inside[node] = first.node_copy(node, inside.__getitem__)
        several = len(self.results) > 1
        returned = [inside[node] for node in self.results]
        first.output(tuple(returned) if several else returned[0])
        first.eliminate_dead_code()
        made: dict[Node, Node] = {}
        read: Node | None = None
        for node in self.traced.graph.nodes:
            if node in self.results and read is None:
                read = rest.get_attr(name)
                for k, result in enumerate(self.results):
                    made[result] = Proxy(read)[k].node if several else read  # type: ignore[index]
                    made[result].meta = {**result.meta}
            if node.op == "output":
                rest.output(map_arg(node.args[0], made.__getitem__), type_expr=node.type)
            elif node not in self.constant or (node.op == "get_attr" and self._is_read(node)):
                made[node] = rest.node_copy(node, made.__getitem__)
        rest._codegen = self.traced.graph._codegen
        setattr(self.traced, name, nn.ParameterList() if several else nn.Parameter(ts.empty(0)))
        return FoldedGraphModule(self.traced, rest, first, name, device)

    def _is_read(self, node: Node) -> bool:
        return any(user not in self.constant for user in node.users)
