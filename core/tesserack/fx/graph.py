"""Graphs: the steps of a program in order, and the program written from them."""

from __future__ import annotations

import builtins
import contextlib
import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any

from tesserack.fx._source import Writer
from tesserack.fx.node import Node, map_arg, target_name

__all__ = ["Graph", "PythonCode"]


class PythonCode:
    """Source text of a function and the values its names stand for."""

    def __init__(self, src: str, globals: dict[str, Any]) -> None:
        self.src, self.globals = src, globals


class Graph:
    """Nodes in the order they run in.

    >>> import tesserack as ts
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(ts.relu, (x,)))
    >>> [node.op for node in graph.nodes]
    ['placeholder', 'call_function', 'output']
    """

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None) -> None:
        self._root = Node.__new__(Node)  # the end of the ring: before the first node and after the last
        self._root._prev = self._root._next = self._root
        self._insert: Callable[[Node], None] = self._root.prepend
        self._names: set[str] = set()
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls

    @property
    def nodes(self) -> _Nodes:
        """The nodes in order; may be changed while they are iterated over."""
        return _Nodes(self._root)

    # --- adding nodes ----------------------------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A new node where nodes are being inserted: at the end, unless within :meth:`inserting_before`."""
        node = Node(
            self, self._fresh_name(name or _candidate(op, target)), op, target, args or (), kwargs or {}, type_expr
        )
        self._insert(node)
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """A parameter of the program."""
        return self.create_node("placeholder", name, () if default_value is ... else (default_value,), name=name)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the module."""
        return self.create_node("get_attr", qualified_name)

    def call_module(self, module_name: str, args: Any = (), kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs)

    def call_method(self, method_name: str, args: Any = (), kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: Any = (),
        kwargs: Any = None,
        type_expr: Any = None,
        name: Any = None,
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """What the program returns."""
        return self.create_node("output", "output", (result,))

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda node: node) -> Node:
        """A copy of another graph's node, with its arguments put through a function."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        copy = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copy.meta = {**node.meta}
        return copy

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copies of all nodes of another graph; returns what stands for its result."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    @contextlib.contextmanager
    def _inserting(self, insert: Callable[[Node], None]) -> Iterator[None]:
        before, self._insert = self._insert, insert
        try:
            yield
        finally:
            self._insert = before

    def inserting_before(self, n: Node | None = None) -> contextlib.AbstractContextManager[None]:
        """A context in which new nodes come right before ``n``, or at the beginning."""
        return self._inserting((self._root._next if n is None else n).prepend)

    def inserting_after(self, n: Node | None = None) -> contextlib.AbstractContextManager[None]:
        """A context in which new nodes come right after ``n``, in the order of making, or at the end."""
        return self._inserting((self._root if n is None else n._next).prepend)

    # --- removing and looking ----------------------------------------------------------------------------------------

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node. ``RuntimeError`` if another one reads it."""
        if to_erase.users:
            raise RuntimeError(f"erase_node: {to_erase} is still read by {[*to_erase.users]}")
        to_erase._set((), {})
        to_erase._unlink()
        to_erase._erased = True

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove steps that nothing reads; whether there were any."""
        impure, changed = is_impure_node or Node.is_impure, False
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind, and with a target unless that is None."""
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    def output_node(self) -> Node:
        """The node with the result."""
        return next(node for node in reversed(self.nodes) if node.op == "output")

    def lint(self) -> None:
        """``RuntimeError`` if a node reads one that comes after it, or a name is taken twice."""
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            for read in node.all_input_nodes:
                if read not in seen:
                    raise RuntimeError(f"lint: {node} reads {read}, which does not come before it")
            if node.name in names:
                raise RuntimeError(f"lint: two nodes are called {node.name!r}")
            seen.add(node)
            names.add(node.name)

    def print_tabular(self) -> None:
        """Print a line per node."""
        rows = [(n.op, n.name, target_name(n.target), str(n.args), str(n.kwargs)) for n in self.nodes]
        header = ("opcode", "name", "target", "args", "kwargs")
        widths = [max(len(row[k]) for row in (header, *rows)) for k in range(5)]
        for row in (header, tuple("-" * w for w in widths), *rows):
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())

    def __str__(self) -> str:
        return "\n".join(["graph():", *(f"    {node.format_node()}" for node in self.nodes)])

    def __deepcopy__(self, memo: Any = None) -> Graph:
        copy = Graph(tracer_cls=self._tracer_cls)
        result = copy.graph_copy(self, {})
        copy.output(result)
        return copy

    def _fresh_name(self, candidate: str) -> str:
        name = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if name[0].isdigit():
            name = f"_{name}"
        taken = self._names
        base, number = re.sub(r"_\d+$", "", name), 0
        while name in taken or keyword.iskeyword(name) or hasattr(builtins, name):
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        return name

    # --- source text -------------------------------------------------------------------------------------------------

    def python_code(self, root_module: str = "self", **options: Any) -> PythonCode:
        """The program as a function ``forward`` of the module called ``root_module``."""
        writer = Writer(root_module, self._names, [*self.nodes])
        return PythonCode(writer.text(), writer.globals)

    def set_codegen(self, codegen: Any) -> None:
        """``NotImplementedError``: the program is written in one way."""
        raise NotImplementedError("set_codegen: the program is written in one way")


class _Nodes:
    """The nodes of a graph, forwards or backwards."""

    def __init__(self, root: Node, backwards: bool = False) -> None:
        self._root, self._backwards = root, backwards

    def __iter__(self) -> Iterator[Node]:
        node = self._root._prev if self._backwards else self._root._next
        while node is not self._root:
            following = node._prev if self._backwards else node._next
            yield node
            # A node that was removed meanwhile stands in its own ring.
            node = (node._prev if self._backwards else node._next) if node._next is not node else following

    def __reversed__(self) -> _Nodes:
        return _Nodes(self._root, not self._backwards)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _candidate(op: str, target: Any) -> str:
    name = target.replace(".", "_") if isinstance(target, str) else str(getattr(target, "__name__", op))
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()
