"""What a pass does to a graph: which nodes it makes and removes."""

from __future__ import annotations

import os
from typing import Any

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node

__all__ = ["GraphTransformObserver"]


@compatibility(is_backward_compatible=False)
class GraphTransformObserver:
    """As a context around a pass: then ``created_nodes`` and ``erased_nodes`` are the names of what came and went.

    With ``log_url``, a folder, the graphs before and after are written into it as text.
    """

    def __init__(
        self, gm: GraphModule, passname: str, subsystem: str | None = None, log_url: str | None = None
    ) -> None:
        self.gm, self.passname, self.subsystem, self.log_url = gm, passname, subsystem, log_url
        self.erased_nodes: set[str] = set()
        self.created_nodes: set[str] = set()
        self.name_to_node: dict[str, Node] = {}

    def apply_gm_pass(self, pass_fn: Any) -> Any:
        """What a function of the module returns, observed."""
        with self:
            return pass_fn(self.gm)

    def apply_graph_pass(self, pass_fn: Any) -> Any:
        """What a function of the graph returns, observed."""
        with self:
            return pass_fn(self.gm.graph)

    def __enter__(self) -> GraphTransformObserver:
        self._before = str(self.gm.graph)
        self.gm._register_create_node_hook(self.on_node_creation)
        self.gm._register_erase_node_hook(self.on_node_erase)
        return self

    def __exit__(self, *exc: object) -> None:
        self.gm._unregister_create_node_hook(self.on_node_creation)
        self.gm._unregister_erase_node_hook(self.on_node_erase)
        if self.log_url is not None and (self.created_nodes or self.erased_nodes):
            os.makedirs(self.log_url, exist_ok=True)
            for when, text in (("input", self._before), ("output", str(self.gm.graph))):
                with open(os.path.join(self.log_url, f"pass_{self.passname}_{when}_graph.txt"), "w") as file:
                    file.write(text)

    def on_node_creation(self, node: Node) -> None:
        """A node was made."""
        self.created_nodes.add(node.name)
        self.name_to_node[node.name] = node

    def on_node_erase(self, node: Node) -> None:
        """A node was removed."""
        self.erased_nodes.add(node.name)
        self.name_to_node.pop(node.name, None)
