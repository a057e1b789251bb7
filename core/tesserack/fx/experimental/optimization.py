"""Making modules for inference: batch norms folded into what comes before them, dropouts left out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from tesserack import nn
from tesserack.fx._symbolic_trace import Tracer, symbolic_trace
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.nn.modules.module import Module
from tesserack.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = ["fuse", "matches_module_pattern", "remove_dropout", "replace_node_module"]

_FUSIONS: tuple[tuple[type[Module], type[Module], Callable[..., Module]], ...] = (
    (nn.Conv1d, nn.BatchNorm1d, fuse_conv_bn_eval),
    (nn.Conv2d, nn.BatchNorm2d, fuse_conv_bn_eval),
    (nn.Conv3d, nn.BatchNorm3d, fuse_conv_bn_eval),
    (nn.Linear, nn.BatchNorm1d, fuse_linear_bn_eval),
)


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, Any]) -> bool:
    """Whether a node calls a module of the second type on what a module of the first gave."""
    if not node.args or not isinstance(node.args[0], Node):
        return False
    for expected, current in zip(pattern, (node.args[0], node), strict=True):
        if current.op != "call_module" or type(modules.get(current.target)) is not expected:
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, Any], new_module: Module) -> None:
    """Put a module in the place of the one that a node calls."""
    parent, _, name = node.target.rpartition(".")
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> Module:
    """A module in evaluation with each batch norm folded into the convolution or linear layer right before it.

    Of a copy unless ``inplace``; with ``no_trace`` the module is a :class:`GraphModule` already.

    >>> from tesserack import nn
    >>> net = nn.Sequential(nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), nn.ReLU()).eval()
    >>> [type(m).__name__ for m in fuse(net).children()]
    ['Conv1d', 'ReLU']
    """
    if not inplace:
        model = copy.deepcopy(model)
    traced: Any = model if no_trace else symbolic_trace(model)
    modules = dict(traced.named_modules())
    graph = copy.deepcopy(traced.graph)
    for first, second, folded in _FUSIONS:
        for node in graph.nodes:
            if not matches_module_pattern((first, second), node, modules) or len(node.args[0].users) > 1:
                continue
            norm = modules[node.target]
            if not norm.track_running_stats:
                continue
            replace_node_module(node.args[0], modules, folded(modules[node.args[0].target], norm))
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return GraphModule(traced, graph)


def remove_dropout(model: Module) -> Module:
    """The module as a graph, without its ``nn.Dropout`` modules."""
    tracer = Tracer()
    graph = tracer.trace(model)
    modules = dict(model.named_modules())
    for node in graph.nodes:
        if node.op == "call_module" and isinstance(modules[node.target], nn.Dropout):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return GraphModule(model, graph)
