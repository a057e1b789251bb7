"""Steps that compute the same, once."""

from __future__ import annotations

from typing import Any

from tesserack.aten.operators import OpOverload, OpOverloadPacket, namespace
from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_arg
from tesserack.fx.passes.infra.pass_base import PassBase, PassResult

__all__ = ["CSEPass", "get_CSE_banned_ops"]

aten = namespace("aten")
rand_ops = {getattr(aten, name) for name in (
    "dropout", "_fused_dropout", "_standard_gamma", "bernoulli", "multinomial", "native_dropout", "normal", "poisson",
    "binomial", "rrelu", "rand_like", "rand", "randint", "randn", "randperm",
)}  # fmt: skip
inplace_ops = {getattr(aten, name) for name in (
    "add_", "sub_", "mul_", "div_", "pow_", "lerp_", "relu_", "sigmoid_", "tanh_",
)}  # fmt: skip


@compatibility(is_backward_compatible=False)
def get_CSE_banned_ops() -> set[OpOverloadPacket]:
    """Operators whose calls are each something else: random ones, and those that write."""
    return rand_ops | inplace_ops


@compatibility(is_backward_compatible=False)
class CSEPass(PassBase):
    """Leaves one of several steps that compute the same of the same; those of ``banned_ops`` are left alone.

    >>> import tesserack as ts
    >>> from tesserack import fx
    >>> traced = fx.symbolic_trace(lambda x: ts.relu(x) + ts.relu(x))
    >>> result = CSEPass()(traced)
    >>> result.modified, len(result.graph_module.graph.nodes)
    (True, 4)
    """

    def __init__(self, banned_ops: set[OpOverloadPacket] | None = None) -> None:
        self.banned_ops = banned_ops or set()

    def call(self, graph_module: GraphModule) -> PassResult:
        """A module with a new graph, where there were such steps."""
        graph, modified = Graph(), False
        made: dict[Node, Node] = {}
        known: dict[Any, Node] = {}
        for node in graph_module.graph.nodes:
            key = self._key(node, made)
            if key is not None and key in known:
                made[node], modified = known[key], True
                continue
            made[node] = graph.node_copy(node, lambda n: made[n])
            if key is not None:
                known[key] = made[node]
        return PassResult(GraphModule(graph_module, graph) if modified else graph_module, modified)

    def _key(self, node: Node, made: dict[Node, Node]) -> Any:
        """What a step computes, of what; None for one that is left alone."""
        target = node.target.overloadpacket if isinstance(node.target, OpOverload) else node.target
        if node.op in ("placeholder", "output", "get_attr") or target in self.banned_ops:
            return None
        writes = node.op == "call_method" and target.endswith("_") and not target.endswith("__")
        if writes or (node.op == "call_function" and node.is_impure()):
            return None  # which computes something else each time
        args, kwargs = (map_arg(value, lambda n: made[n]) for value in (node.args, node.kwargs))
        key = (node.op, node.target, _frozen(args), _frozen(kwargs))
        try:
            hash(key)
        except TypeError:
            return None
        return key


def _frozen(value: Any) -> Any:
    """A value as a key, in which 1, 1.0 and True are three."""
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(map(_frozen, value))
    if isinstance(value, dict):
        return "dict", tuple((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, slice):
        return "slice", tuple(map(_frozen, (value.start, value.stop, value.step)))
    return type(value), value
