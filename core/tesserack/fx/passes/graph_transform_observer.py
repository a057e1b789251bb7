"""What a pass does to a graph: which nodes it makes and removes."""

from __future__ import annotations

import os
from typing import Any

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.fx.traceback import NodeSource, NodeSourceAction

__all__ = ["GraphTransformObserver"]


@compatibility(is_backward_compatible=False)
class GraphTransformObserver:
    """As a context around a pass: then ``created_nodes`` and ``erased_nodes`` are the names of what came and went.

    New nodes note in ``meta["from_node"]`` which pass made them, and from which nodes. With ``log_url``, a folder, the
    graphs before and after are written into it for Graphviz, what came or went in yellow.
    """

    _count = 0

    def __init__(
        self, gm: GraphModule, passname: str, subsystem: str | None = None, log_url: str | None = None
    ) -> None:
        self.gm, self.passname, self.subsystem, self.log_url = gm, passname, subsystem, log_url
        self.erased_nodes: set[str] = set()
        self.created_nodes: set[str] = set()
        self.name_to_node: dict[str, Node] = {}
        if log_url is not None:
            GraphTransformObserver._count += 1

    @classmethod
    def get_current_pass_count(cls) -> int:
        """How many observers with a folder were made."""
        return GraphTransformObserver._count

    def apply_gm_pass(self, pass_fn: Any) -> Any:
        """What a function of the module returns, observed."""
        with self:
            return pass_fn(self.gm)

    def apply_graph_pass(self, pass_fn: Any) -> Any:
        """What a function of the graph returns, observed."""
        with self:
            return pass_fn(self.gm.graph)

    def __enter__(self) -> GraphTransformObserver:
        self._before = [(node.name, [user.name for user in node.users]) for node in self.gm.graph.nodes]
        self.name_to_node = {node.name: node for node in self.gm.graph.nodes}
        self.gm._register_create_node_hook(self.on_node_creation)
        self.gm._register_erase_node_hook(self.on_node_erase)
        self.gm._register_replace_node_hook(self.on_node_replace)
        return self

    def __exit__(self, *exc: object) -> None:
        self.gm._unregister_create_node_hook(self.on_node_creation)
        self.gm._unregister_erase_node_hook(self.on_node_erase)
        self.gm._unregister_replace_node_hook(self.on_node_replace)
        if self.log_url is not None and (self.created_nodes or self.erased_nodes):
            os.makedirs(self.log_url, exist_ok=True)
            after = [(node.name, [user.name for user in node.users]) for node in self.gm.graph.nodes]
            for when, edges, changed in (
                ("input", self._before, self.erased_nodes), ("output", after, self.created_nodes),
            ):  # fmt: skip
                name = f"pass_{self._count}_{self.passname}_{when}_graph.dot"
                with open(os.path.join(self.log_url, name), "w") as file:
                    file.write(_as_dot(self.passname, edges, changed))

    def on_node_creation(self, node: Node) -> None:
        """A node was made."""
        self.created_nodes.add(node.name)
        self.name_to_node[node.name] = node
        node.meta["from_node"] = [
            *node.meta.get("from_node", []), NodeSource(None, self.passname, NodeSourceAction.CREATE),
        ]  # fmt: skip

    def on_node_erase(self, node: Node) -> None:
        """A node was removed."""
        self.erased_nodes.add(node.name)
        self.name_to_node.pop(node.name, None)

    def on_node_replace(self, old: Node, new: str, user: Node | None) -> None:
        """A node took the place of another in what reads it."""
        made = self.name_to_node.get(new)
        noted = made.meta.get("from_node", []) if made is not None else []
        if made is None or any(source.name == old.name for source in noted):
            return
        own = NodeSource(None, self.passname, NodeSourceAction.CREATE)
        created = [NodeSourceAction.CREATE] if new in self.created_nodes else []
        source = NodeSource(old, self.passname, [NodeSourceAction.REPLACE, *created])
        made.meta["from_node"] = [*(each for each in noted if each != own), source]


def _as_dot(name: str, edges: list[tuple[str, list[str]]], changed: set[str]) -> str:
    nodes = [f'  "{n}" [style=filled, fillcolor={"yellow" if n in changed else "grey"}];' for n, _ in edges]
    return "\n".join([f'digraph "{name}" {{', *nodes, *(f'  "{n}" -> "{u}";' for n, us in edges for u in us), "}\n"])
