"""Programs as graphs: :func:`symbolic_trace` writes a module down, :class:`GraphModule` runs what was made of it."""

from tesserack.fx import graph, graph_module, interpreter, node, proxy
from tesserack.fx._symbolic_trace import PH, PHBase, Tracer, symbolic_trace, wrap
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.interpreter import Interpreter, Transformer
from tesserack.fx.node import Node, has_side_effect, map_arg
from tesserack.fx.proxy import Proxy, TraceError
from tesserack.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "PHBase",
    "Proxy",
    "TraceError",
    "Tracer",
    "Transformer",
    "graph",
    "graph_module",
    "has_side_effect",
    "interpreter",
    "map_arg",
    "node",
    "proxy",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]
