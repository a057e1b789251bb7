"""Running a graph node by node."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from tesserack.fx import traceback as fx_traceback
from tesserack.fx._compatibility import compatibility
from tesserack.fx._symbolic_trace import Tracer
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_aggregate, map_arg
from tesserack.fx.proxy import Proxy
from tesserack.nn.modules.module import Module

__all__ = ["Interpreter", "Transformer"]


@compatibility(is_backward_compatible=True)
class Interpreter:
    """Runs a graph; the methods named as kinds of nodes may be overridden to see or change each step.

    >>> import operator
    >>> from tesserack import fx
    >>> class Swapped(Interpreter):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(operator.sub if target is operator.add else target, args, kwargs)
    >>> Swapped(fx.symbolic_trace(lambda a, b: a + b)).run(5, 3)
    2
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module: Any = module
        self.submodules = dict(self.module.named_modules())
        self.graph: Graph = graph if graph is not None else self.module.graph
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """The result for these arguments. Values in ``initial_env`` are not computed."""
        self.env = dict(initial_env) if initial_env is not None else {}
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        if self.garbage_collect_values:
            self.user_to_last_uses = self._last_uses()
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self._run_told(node)
            for read in self.user_to_last_uses.get(node, ()) if self.garbage_collect_values else ():
                self.env.pop(read, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """The result for a list of arguments, which is emptied first, so that they are let go as they are used."""
        args = [*args_list]
        args_list.clear()
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        if len(placeholders) != len(args):
            raise AssertionError(f"Interpreter.boxed_run expected {len(placeholders)} arguments but got {len(args)}")
        return self.run(initial_env=dict(zip(placeholders, args, strict=True)))

    def _run_told(self, node: Node) -> Any:
        """The value of a node; an error says which node it was."""
        try:
            return self.run_node(node)
        except Exception as error:
            if self.extra_traceback and not getattr(error, "_fx_told", False):
                told = f"While executing {node.format_node()}"
                trace = f"\nOriginal traceback:\n{node.stack_trace}" if node.stack_trace else ""
                message = f"{error.args[0]}\n\n{told}{trace}" if error.args else f"{told}{trace}"
                if not isinstance(error, KeyError):
                    error.args = (message, *error.args[1:])
                with contextlib.suppress(AttributeError):
                    error._fx_told = True  # type: ignore[attr-defined]
            raise

    def _last_uses(self) -> dict[Node, list[Node]]:
        """The values that nothing reads after each node."""
        last: dict[Node, Node] = {}
        for node in self.graph.nodes:
            for read in node._input_nodes:
                last[read] = node
        done: dict[Node, list[Node]] = {}
        for read, node in last.items():
            done.setdefault(node, []).append(read)
        return done

    @contextlib.contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        with fx_traceback.set_current_meta(node, f"Interpreter_{type(self).__name__}"):
            yield

    def run_node(self, n: Node) -> Any:
        """The value of one node."""
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            assert isinstance(args, tuple) and isinstance(kwargs, dict)
            return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A node's arguments as values."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Values in place of nodes. ``RuntimeError`` for one that did not run."""

        def value(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[node]

        return _plain(map_arg(args, value))

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module by its dotted name."""
        value: Any = self.module
        parts = target.split(".")
        for k, name in enumerate(parts):
            if not hasattr(value, name):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: k + 1])}")
            value = getattr(value, name)
        return value

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The next argument; the default where none is left."""
        assert isinstance(target, str)
        if target.startswith("*"):
            return [*self.args_iter]
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

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


def _plain(value: Any) -> Any:
    """Arguments as functions take them: lists and dicts that may change."""
    if type(value) is tuple:
        return tuple(_plain(item) for item in value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


@compatibility(is_backward_compatible=True)
class Transformer(Interpreter):
    """Writes a graph anew, step by step; :meth:`transform` gives the module that runs it."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph(tracer_cls=module.graph._tracer_cls)
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer: Any = _TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A parameter of the new program."""
        default = args[0] if args else inspect.Signature.empty
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A parameter or buffer."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a submodule."""
        module = self.fetch_attr(target)
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a function."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a method."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module with the new graph."""
        with fx_traceback.preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:
            value = map_aggregate(result, lambda item: item.node if isinstance(item, Proxy) else item)
            old = self.graph.output_node()
            new = self.new_graph.output(value, type_expr=old.type)
            new.meta.update(old.meta)
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)


class _TransformerTracer(Tracer):
    """One for which modules of the old graph are leaves."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """True."""
        return True
