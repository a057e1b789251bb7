"""Modules that run a graph."""

from __future__ import annotations

import copy
import linecache
from typing import Any

from tesserack._native import Tensor
from tesserack.fx.graph import Graph
from tesserack.nn.modules.module import Module

__all__ = ["GraphModule"]

_count = [0]


class GraphModule(Module):
    """A module whose ``forward`` is written from a graph. After changing ``graph``, call :meth:`recompile`.

    ``root`` is a module, whose parts that the graph names are taken over, or a dict of them by name.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # Each has a class of its own, because forward is looked up on the class.
        derived: type[GraphModule] = type(cls.__name__, (cls,), {"_plain_class": cls, "__module__": cls.__module__})
        return super().__new__(derived)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name if class_name.isidentifier() else "GraphModule"
        self.training = getattr(root, "training", self.training)
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                value = root[node.target] if isinstance(root, dict) else _read(root, node.target)
                self._place(node.target, value)
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph that ``forward`` runs."""
        return self.__dict__["_graph"]  # type: ignore[no-any-return]

    @graph.setter
    def graph(self, graph: Graph) -> None:
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source text of ``forward``."""
        return self.__dict__["_code"]  # type: ignore[no-any-return]

    def recompile(self) -> Any:
        """Write ``forward`` from the graph anew."""
        program = self._graph.python_code("self")
        self.__dict__["_code"] = program.src
        _count[0] += 1
        file = f"<tesserack.fx {_count[0]}>"
        linecache.cache[file] = (len(program.src), None, program.src.splitlines(True), file)
        namespace: dict[str, Any] = {**program.globals}
        exec(compile(program.src, file, "exec"), namespace)
        setattr(type(self), "forward", namespace["forward"])  # noqa: B010
        return program

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        """The class as text, printed unless told otherwise."""
        body = "\n".join(f"    {line}" for line in self._code.strip().splitlines())
        text = f"class {type(self).__name__}(torch.nn.Module):\n{body}\n"
        if print_output:
            print(text)
        return text

    # --- submodules --------------------------------------------------------------------------------------------------

    def _place(self, path: str, value: Any) -> None:
        *parents, last = path.split(".")
        module: Module = self
        for name in parents:
            if not hasattr(module, name):
                module.add_module(name, Module())
            module = getattr(module, name)
        if isinstance(value, Tensor) and not isinstance(value, _parameter()):
            module.register_buffer(last, value)
        else:
            setattr(module, last, value)

    def add_submodule(self, target: str, m: Module) -> bool:
        """Add a submodule under a dotted name, with modules above it as needed; False if something else is there."""
        *parents, last = target.split(".")
        module: Any = self
        for name in parents:
            if not hasattr(module, name):
                module.add_module(name, Module())
            module = getattr(module, name)
            if not isinstance(module, Module):
                return False
        module.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove a submodule by its dotted name; False if there is none."""
        *parents, last = target.split(".")
        module: Any = self
        for name in parents:
            module = getattr(module, name, None)
        if not isinstance(module, Module) or last not in module._modules:
            return False
        del module._modules[last]
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove submodules that the graph does not call."""
        used = {node.target for node in self._graph.nodes if node.op in ("call_module", "get_attr")}
        kept = {".".join(name.split(".")[:k]) for name in used for k in range(1, name.count(".") + 2)}
        for name, _ in [*self.named_modules()]:
            inside = any(name.startswith(f"{target}.") for target in used)
            if name and name not in kept and not inside:
                self.delete_submodule(name)

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        parts = Module()
        parts.__dict__.update(
            copy.deepcopy({k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}, memo)
        )
        made = self._plain_class.__new__(self._plain_class)
        GraphModule.__init__(made, parts, copy.deepcopy(self._graph), type(self).__name__)
        for name, value in parts.__dict__.items():
            made.__dict__.setdefault(name, value)
        memo[id(self)] = made
        return made  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        parts = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}
        return _restore, (parts, type(self).__name__, self._steps())

    def _steps(self) -> list[Any]:
        from tesserack.fx.node import map_arg

        numbers = {node: k for k, node in enumerate(self._graph.nodes)}

        def number(value: Any) -> Any:
            return map_arg(value, lambda node: _Reference(numbers[node]))

        return [(n.op, n.target, number(n.args), number(n.kwargs), n.name) for n in self._graph.nodes]


class _Reference:
    """Another step, by its number."""

    def __init__(self, number: int) -> None:
        self.number = number


def _restore(parts: dict[str, Any], name: str, steps: list[Any]) -> GraphModule:
    """A module from what ``__reduce__`` gave."""
    from tesserack.fx.node import map_aggregate

    graph = Graph()
    made: list[Any] = []

    def resolve(value: Any) -> Any:
        return map_aggregate(value, lambda item: made[item.number] if isinstance(item, _Reference) else item)

    for op, target, args, kwargs, node_name in steps:
        made.append(graph.create_node(op, target, resolve(args), resolve(kwargs), node_name))
    root = Module()
    root.__dict__.update(parts)
    return GraphModule(root, graph, name)


def _read(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


def _parameter() -> type:
    from tesserack.nn.parameter import Parameter

    return Parameter
