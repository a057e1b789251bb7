"""What backends read of layers: their parameters and settings, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import nn
from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph_module import GraphModule

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]


@compatibility(is_backward_compatible=False)
def default_matching(name: str, target_version: int) -> str:
    """The name itself."""
    return name


_CONV = ["weight", "bias", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"]
_POOL = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]
# By class: the version of the layer, what is read, and how a name is found in a version.
module_fetch_book: dict[type, tuple[int, list[str], Callable[[str, int], str]]] = {
    nn.Linear: (1, ["weight", "bias"], default_matching),
    nn.Conv2d: (1, _CONV, default_matching),
    nn.BatchNorm2d: (2, ["weight", "bias", "running_mean", "running_var", "eps"], default_matching),
    nn.AdaptiveAvgPool2d: (1, [], default_matching),
    nn.MaxPool2d: (1, _POOL, default_matching),
    nn.ReLU: (1, ["inplace"], default_matching),
}


@compatibility(is_backward_compatible=False)
def extract_attrs_for_lowering(mod: nn.Module) -> dict[str, Any]:
    """What is read of a layer, by name. ``RuntimeError`` for a class or version that the book has not."""
    if type(mod) not in module_fetch_book:
        raise RuntimeError(f"{ts.typename(mod)} is not in the module_fetch_book yet, please add it")
    version, names, matching = module_fetch_book[type(mod)]
    own = getattr(mod, "_version", 1)
    if version < own:
        raise RuntimeError(f"Fetcher version {version} try to fetch {ts.typename(mod)} version {own}, please upgrade")
    return {"name": ts.typename(mod), **{name: getattr(mod, matching(name, own)) for name in names}}


@compatibility(is_backward_compatible=False)
def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Note at each node that calls a layer, as ``attrs_for_lowering``, what is read of it."""
    modules = dict(fx_module.named_modules())
    for node in fx_module.graph.nodes:
        if node.op == "call_module":
            module = modules[node.target]
            if isinstance(module, GraphModule):
                lift_lowering_attrs_to_nodes(module)
            else:
                node.attrs_for_lowering = extract_attrs_for_lowering(module)
