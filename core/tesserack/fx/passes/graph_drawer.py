"""Graphs as pictures, by ``pydot``."""

from __future__ import annotations

import hashlib
from typing import Any

import tesserack as ts
from tesserack.fx._compatibility import compatibility
from tesserack.fx._naming import format_arg, qualified_name
from tesserack.fx._writer import _innermost
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.fx.operator_schemas import normalize_function
from tesserack.fx.passes.shape_prop import TensorMetadata
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["FxGraphDrawer"]

_COLORS = {
    "placeholder": '"AliceBlue"', "call_module": "LemonChiffon1", "get_param": "Yellow2", "get_attr": "LightGrey",
    "output": "PowderBlue",
}  # fmt: skip
_BY_TARGET = (
    "CadetBlue1", "Coral", "DarkOliveGreen1", "DarkSeaGreen1", "GhostWhite", "Khaki1", "LavenderBlush1", "LightSkyBlue",
    "MistyRose1", "PaleTurquoise2", "PaleVioletRed1", "Salmon", "Thistle1", "SkyBlue1",
)  # fmt: skip


def _escaped(text: str) -> str:
    return text.replace("{", r"\{").replace("}", r"\}")


@compatibility(is_backward_compatible=False)
class FxGraphDrawer:
    """Pictures of a module and of its submodules that are graphs. ``RuntimeError`` where ``pydot`` is not installed."""

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        try:
            import pydot  # type: ignore[import-not-found, unused-ignore]
        except ModuleNotFoundError:
            raise RuntimeError("FXGraphDrawer requires the pydot package to be installed: pip install pydot") from None
        self._pydot, self._name = pydot, name
        self.dot_graph_shape, self.normalize_args = dot_graph_shape or "record", normalize_args
        self._ignored = (ignore_getattr, ignore_parameters_and_buffers)
        self._labels = (skip_node_names_in_args, parse_stack_trace)
        self._dot_graphs = {name: self._to_dot(graph_module, name)}
        for node in graph_module.graph.nodes:
            if node.op == "call_module":
                inner = self._get_leaf_node(graph_module, node)
                if isinstance(inner, GraphModule):
                    self._dot_graphs[f"{name}_{node.target}"] = self._to_dot(inner, f"{name}_{node.target}")

    def get_dot_graph(self, submod_name: str | None = None) -> Any:
        """The picture of the module, or of a submodule."""
        return self._dot_graphs[self._name if submod_name is None else f"{self._name}_{submod_name}"]

    def get_main_dot_graph(self) -> Any:
        """The picture of the module."""
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name: str) -> Any:
        """The picture of a submodule."""
        return self._dot_graphs[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self) -> dict[str, Any]:
        """All pictures, by name."""
        return self._dot_graphs

    def _get_node_style(self, node: Node) -> dict[str, str]:
        name = node._pretty_print_target(node.target)
        number = int(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()[:8], 16)
        color = _COLORS.get(node.op, _BY_TARGET[number % len(_BY_TARGET)])
        return {"shape": self.dot_graph_shape, "fillcolor": color, "style": '"filled,rounded"', "fontcolor": "#000000"}

    def _get_leaf_node(self, module: Module, node: Node) -> Any:
        found: Any = module
        for name in node.target.split("."):
            if not hasattr(found, name):
                raise RuntimeError(f"{found} does not have attribute {name}!")
            found = getattr(found, name)
        return found

    def _typename(self, target: Any) -> str:
        if isinstance(target, Module):
            return _escaped(ts.typename(target))
        return _escaped(target if isinstance(target, str) else qualified_name(target))

    def _get_node_label(self, module: GraphModule, node: Node) -> str:
        parts = [f"name=%{node.name}", f"op_code={node.op}"]
        if node.op == "call_module":
            inner = self._get_leaf_node(module, node)
            constants = [f"{c}: {getattr(inner, c)}" for c in getattr(inner, "__constants__", ())]
            parts += [self._typename(inner), _escaped("\\n".join(constants))]
        else:
            parts += [f"target={self._typename(node.target)}", *self._arguments(node), f"num_users={len(node.users)}"]
        parts += self._of_tensors(node.meta.get("tensor_meta"))
        place = _innermost(node.stack_trace) if self._labels[1] else None
        parts += [_escaped(place)] if place else []
        return "{" + "|".join(f"{part}\\n" for part in parts) + "}"

    def _arguments(self, node: Node) -> list[str]:
        args, kwargs = node.args, node.kwargs
        if self.normalize_args and node.op == "call_function":
            found = normalize_function(node.target, args, kwargs, normalize_to_only_use_kwargs=True)
            args, kwargs = found if found is not None else (args, kwargs)
        by_place = [format_arg(arg, max_list_len=8) for arg in args]
        by_name = [f"{name}: {format_arg(arg, max_list_len=8)}" for name, arg in kwargs.items()]
        kept = [[t for t in texts if not (self._labels[0] and "%" in t)] for texts in (by_place, by_name)]
        found_parts = [f"args=({', '.join(kept[0])},)"] if kept[0] else []
        return [_escaped(part) for part in found_parts + ([f"kwargs={{{', '.join(kept[1])},}}"] if kept[1] else [])]

    def _of_tensors(self, found: Any) -> list[str]:
        if isinstance(found, TensorMetadata):
            return [f"dtype={found.dtype}", f"shape={tuple(found.shape)}", f"requires_grad={found.requires_grad}",
                    f"stride={found.stride}"]  # fmt: skip
        items = found.values() if isinstance(found, dict) else found if isinstance(found, (list, tuple)) else ()
        return [part for item in items for part in self._of_tensors(item)]

    def _to_dot(self, graph_module: GraphModule, name: str) -> Any:
        graph = self._pydot.Dot(name, rankdir="TB")
        shown = [n for n in graph_module.graph.nodes if not (self._ignored[0] and n.op == "get_attr")]
        for node in shown:
            label = self._get_node_label(graph_module, node)
            graph.add_node(self._pydot.Node(node.name, label=label, **self._get_node_style(node)))
            if node.op == "call_module" and not self._ignored[1]:
                self._add_tensors(graph, node, self._get_leaf_node(graph_module, node))
        for node in shown:
            for user in node.users:
                graph.add_edge(self._pydot.Edge(node.name, user.name))
        return graph

    def _add_tensors(self, graph: Any, node: Node, module: Any) -> None:
        style = {"shape": self.dot_graph_shape, "fillcolor": "Salmon", "style": '"filled,rounded"',
                 "fontcolor": "#000000"}  # fmt: skip
        named = [] if isinstance(module, GraphModule) else [*module.named_parameters(), *module.named_buffers()]
        for name, tensor in named:
            path, kind = f"{node.name}.{name}", "parameter" if isinstance(tensor, Parameter) else "buffer"
            label = "{" + f"{path}|op_code=get_{kind}\\l{tensor.dtype}{[*tensor.shape]}\\n" + "}"
            graph.add_node(self._pydot.Node(path, label=label, **style))
            graph.add_edge(self._pydot.Edge(path, node.name))
