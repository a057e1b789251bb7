"""Programs as graphs: :func:`symbolic_trace` writes a module down, :class:`GraphModule` runs what was made of it."""

from tesserack.fx import graph, graph_module, interpreter, node, proxy
from tesserack.fx._symbolic_trace import PHBase, Tracer, symbolic_trace, wrap
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.interpreter import Interpreter, Transformer
from tesserack.fx.node import Node, map_arg
from tesserack.fx.proxy import Proxy, TraceError

__all__ = [
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
    "interpreter",
    "map_arg",
    "node",
    "proxy",
    "symbolic_trace",
    "wrap",
]
