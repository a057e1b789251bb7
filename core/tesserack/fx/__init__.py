"""Programs as graphs: :func:`symbolic_trace` writes a module down, :class:`GraphModule` runs what was made of it."""

from tesserack.fx import (
    annotate,
    graph,
    graph_module,
    immutable_collections,
    interpreter,
    node,
    operator_schemas,
    proxy,
    subgraph_rewriter,
    traceback,
)
from tesserack.fx._symbolic_trace import (
    PH,
    PHBase,
    PHWithMeta,
    ProxyableClassMeta,
    Tracer,
    is_fx_tracing,
    symbolic_trace,
    wrap,
)
from tesserack.fx.graph import CodeGen, Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.interpreter import Interpreter, Transformer
from tesserack.fx.node import Node, has_side_effect, map_arg
from tesserack.fx.proxy import Proxy, TraceError
from tesserack.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH", "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "PHBase", "PHWithMeta", "Proxy",
    "ProxyableClassMeta", "TraceError", "Tracer", "Transformer", "annotate", "graph", "graph_module", "has_side_effect",
    "immutable_collections", "interpreter", "is_fx_tracing", "map_arg", "node", "operator_schemas", "proxy",
    "replace_pattern", "subgraph_rewriter", "symbolic_trace", "traceback", "wrap",
]  # fmt: skip
