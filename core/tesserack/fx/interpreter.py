"""Running a graph node by node."""

from __future__ import annotations

from typing import Any

from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_arg
from tesserack.fx.proxy import GraphAppendingTracer, Proxy
from tesserack.nn.modules.module import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph; the methods named as kinds of nodes may be overridden to see or change each step."""

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module: Any = module
        self.graph: Graph = graph if graph is not None else self.module.graph
        self.submodules = dict(self.module.named_modules())
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """The result for these arguments."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        left = self._uses() if self.garbage_collect_values else {}
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
            for read in left.get(node, ()):
                del self.env[read]
        return None

    def _uses(self) -> dict[Node, list[Node]]:
        """The values that nothing reads after each node."""
        last: dict[Node, Node] = {}
        for node in self.graph.nodes:
            for read in node.all_input_nodes:
                last[read] = node
        done: dict[Node, list[Node]] = {}
        for read, node in last.items():
            done.setdefault(node, []).append(read)
        return done

    def run_node(self, n: Node) -> Any:
        """The value of one node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A node's arguments as values."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Values in place of nodes. ``RuntimeError`` for one that did not run."""

        def value(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(f"Interpreter: {n} reads {node}, which did not run before it")
            return self.env[node]

        return map_arg(args, value)

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module by its dotted name."""
        value: Any = self.module
        for name in target.split("."):
            value = getattr(value, name)
        return value

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The next argument; the default where none is left."""
        if target.startswith("*"):
            return [*self.args_iter]
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(f"Interpreter: expected an argument {target!r}, got none") from None

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A parameter or buffer."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a function."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a method."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a submodule."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What is returned."""
        return args[0]


class Transformer(Interpreter):
    """Writes a graph anew, step by step; :meth:`transform` gives the module that runs it."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = GraphAppendingTracer(self.new_graph)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A parameter of the new program."""
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A parameter or buffer."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a submodule."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a function."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a method."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module with the new graph."""
        self.env = {}
        for node in self.graph.nodes:
            self.env[node] = self.run_node(node)
            if node.op == "output":
                self.new_graph.output(self.tracer.create_arg(self.env[node]))
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
