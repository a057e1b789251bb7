"""Graphs: the steps of a program in order, and the program written from them."""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from tesserack.fx._codegen import CodeGen, PythonCode, TransformCodeFunc, _BoxedCodeGen
from tesserack.fx._codegen import PyTreeInfo as _PyTreeInfo
from tesserack.fx._compatibility import compatibility
from tesserack.fx._lint import lint
from tesserack.fx._naming import Namespace as _Namespace
from tesserack.fx._naming import snake_case as _snake_case
from tesserack.fx._nodes import InsertPoint, NodeList, ensure_order
from tesserack.fx._writer import INPLACE as inplace_methods
from tesserack.fx._writer import MAGIC as magic_methods
from tesserack.fx._writer import REFLECTED as reflectable_magic_methods
from tesserack.fx._writer import custom_builtins as _custom_builtins
from tesserack.fx._writer import format_target as _format_target
from tesserack.fx._writer import register_custom_builtin as _register_custom_builtin
from tesserack.fx.node import Node, dtype_short, map_arg

__all__ = ["CodeGen", "Graph", "PythonCode", "inplace_methods", "magic_methods", "reflectable_magic_methods"]

_PRIVATE = (_BoxedCodeGen, _PyTreeInfo, _custom_builtins, _format_target, _register_custom_builtin, dtype_short)


@compatibility(is_backward_compatible=True)
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
        self._clear_nodes()
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}

    def _clear_nodes(self) -> None:
        # The end of the ring: before the first node and after the last.
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = _Namespace()

    @property
    def nodes(self) -> NodeList:
        """The nodes in order; may be changed while they are iterated over."""
        return NodeList(self)

    def output_node(self) -> Node:
        """The node with the result."""
        found = self._root._prev
        assert found.op == "output" and found is not self._root, "the last node is no output"
        return found

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind, in order, and with a target unless that is None."""
        assert target is None or op != "output", "an output has no target to look for"
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    def _place(self, node: Node) -> None:
        ensure_order(self, node)

    # --- copies ------------------------------------------------------------------------------------------------------

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copies of all nodes of another graph; returns what stands for its result, with its output node if asked."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda node: node) -> Node:
        """A copy of another graph's node, with its arguments put through a function."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        result = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        result.meta = copy.copy(node.meta)
        return result

    def __deepcopy__(self, memo: Any = None) -> Graph:
        memo = memo if memo is not None else {}
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        found: dict[Node, Node] = {}
        result = made.graph_copy(self, found, return_output_node=True)
        if result is not None:
            value, old = result
            new = made.output(value, type_expr=old.type)
            new.meta = copy.copy(old.meta)
            found[old] = new
        made._codegen = copy.deepcopy(self._codegen, memo)
        made._co_fields = {**self._co_fields}
        memo.update({id(old): new for old, new in found.items()})
        return made

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("_root", "_insert", "owning_module", "_len")}
        if "<locals>" in getattr(self._tracer_cls, "__qualname__", ""):  # what no other process could import
            state["_tracer_cls"] = None
        return {**state, "_steps": [*self.nodes]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        steps = state.pop("_steps")
        self._clear_nodes()
        self.owning_module = None
        self.__dict__.update(state)
        for node in steps:
            node.__dict__.update(_prev=node, _next=node)
            self._root.prepend(node)
            self._len += 1

    # --- adding nodes ------------------------------------------------------------------------------------------------

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
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        assert isinstance(args, tuple), f"args must be a tuple, got {type(args)}"
        assert isinstance(kwargs, dict), f"kwargs must be a dict, got {type(kwargs)}"
        taken = self._graph_namespace.create_name(self._target_to_str(target) if name is None else name)
        node = Node(self, taken, op, target, args, kwargs, type_expr)
        for hook in getattr(self.owning_module, "_create_node_hooks", ()):
            hook(node)
        self._graph_namespace.associate_name_with_obj(taken, node)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """A parameter of the program; with stars in its name, the rest of them."""
        absent = default_value is ... or default_value is inspect.Signature.empty
        return self.create_node("placeholder", name, () if absent else (default_value,), type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the module; a warning if it has no such one."""
        if self.owning_module is not None and not _has_tensor(self.owning_module, qualified_name):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! Call "
                "GraphModule.add_submodule to add the necessary submodule, GraphModule.add_parameter to add the "
                "necessary Parameter, or nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of a submodule; a warning if the module has no such one."""
        if self.owning_module is not None and _follow(self.owning_module, module_name) is None:
            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the owning GraphModule! Call "
                "GraphModule.add_submodule to add the necessary submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """What the program returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def inserting_before(self, n: Node | None = None) -> InsertPoint:
        """A context in which new nodes come right before ``n``, or at the beginning; so they do without ``with``."""
        if n is None:
            return self.inserting_after(self._root)
        assert n.graph is self, "Node to insert before is not in graph."
        return InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> InsertPoint:
        """A context in which new nodes come right after ``n``, or at the end."""
        if n is None:
            return self.inserting_before(self._root)
        assert n.graph is self, "Node to insert after is not in graph."
        return InsertPoint(self, n.append)

    def _target_to_str(self, target: Any) -> str:
        if not isinstance(target, str):
            name = str(getattr(target, "__name__", type(target).__name__))
        else:
            name = target[2:-2] if target.startswith("__") and target.endswith("__") else target
        return _snake_case(name)

    # --- removing and looking ----------------------------------------------------------------------------------------

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node. ``RuntimeError`` if another one reads it, or it is another graph's."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self.owning_module, "_erase_node_hooks", ()):
            hook(to_erase)
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        to_erase._set((), {})

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove steps that nothing reads and that have no effects; whether there were any."""
        self.lint()
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not (is_impure_node(node) if is_impure_node is not None else node.is_impure()):
                self.erase_node(node)
                changed = True
        for inner in self._inner_graphs():
            changed |= inner.graph.eliminate_dead_code(is_impure_node)
        return changed

    def _inner_graphs(self) -> Iterator[Any]:
        children = self.owning_module.children() if self.owning_module is not None else ()
        return (child for child in children if isinstance(getattr(child, "graph", None), Graph))

    def lint(self) -> None:
        """``RuntimeError`` if a node reads one that comes after it or is another graph's, a name is taken twice, or the
        module has not what a node names.
        """
        lint(self)

    def print_tabular(self) -> None:
        """Print a line per node, in columns."""
        rows = [tuple(map(str, (n.op, n.name, n.target, n.args, n.kwargs))) for n in self.nodes]
        header = ("opcode", "name", "target", "args", "kwargs")
        widths = [max(len(row[k]) for row in (header, *rows)) for k in range(5)]
        for row in (header, tuple("-" * w for w in widths), *rows):
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())

    def __str__(self) -> str:
        names: list[str] = []
        returned = [""]
        lines = [node.format_node(names, returned) for node in self.nodes]
        return "\n    ".join([f"graph({', '.join(names)}){returned[0]}:", *(line for line in lines if line)])

    # --- source text -------------------------------------------------------------------------------------------------

    def python_code(
        self,
        root_module: str = "self",
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        """The program as a function ``forward`` of the module called ``root_module``.

        ``verbose`` writes what is known of values into annotations, and places in the user's program as comments.
        """
        namespace = _Namespace()
        with self._named_by(lambda node: namespace.create_name(node.name, node)):
            return self._codegen._gen_python_code(
                self.nodes,
                root_module,
                namespace,
                verbose=verbose,
                include_stride=include_stride,
                include_device=include_device,
                colored=colored,
                expanded_def=expanded_def,
                record_func=record_func,
                additional_meta=additional_meta,
            )

    @contextlib.contextmanager
    def _named_by(self, name: Callable[[Node], str]) -> Iterator[None]:
        before = {node: node._repr_fn for node in self.nodes}
        for node in before:
            node._repr_fn = name
        try:
            yield
        finally:
            for node, own in before.items():
                node._repr_fn = own

    def process_inputs(self, *args: Any) -> Any:
        """The arguments of the nodes from those of the function, as :meth:`set_codegen` has them."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What the function returns, from what the nodes do."""
        return self._codegen.process_outputs(out)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Have the program written by another :class:`CodeGen`."""
        self._codegen = codegen

    def on_generate_code(
        self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]
    ) -> contextlib.AbstractContextManager[None]:
        """Have the lines of the program go through a function, made from the one before it; as a context, undone after.

        >>> graph = Graph()
        >>> _ = graph.output(1)
        >>> with graph.on_generate_code(lambda before: lambda lines: ["print('run')\\n", *lines]):
        ...     print(graph.python_code().src.strip())
        def forward(self):
            print('run')
            return 1
        """
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)

        @contextlib.contextmanager
        def undo() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = before

        return undo()


def _follow(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def _has_tensor(module: Any, path: str) -> bool:
    from tesserack.nn.modules.module import Module

    parent, _, name = path.rpartition(".")
    owner = _follow(module, parent) if parent else module
    if not isinstance(owner, Module) or not hasattr(owner, name):
        return False
    known = isinstance(getattr(owner, name), Module) or name in owner._parameters or name in owner._buffers
    return known or not isinstance(getattr(owner, name), type(None))
