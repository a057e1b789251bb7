"""Exported programs as trees of modules again: each with the part of the graph that was its forward."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

from tesserack.fx.export._ranges import flat_inputs
from tesserack.fx.export._unlift import place, unlifted
from tesserack.fx.export.exported_program import ExportedProgram
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.interpreter import Interpreter
from tesserack.fx.node import Node
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter
from tesserack.utils._pytree import tree_unflatten

__all__ = ["FlatArgsAdapter", "InterpreterModule", "UnflattenedModule", "unflatten"]


class FlatArgsAdapter:
    """Makes inputs of another structure into those that a program was exported with."""

    def adapt(
        self, target_spec: Any, input_spec: Any, input_args: list[Any], metadata: dict[str, Any] | None = None,
        obj: Any = None,
    ) -> list[Any]:  # fmt: skip
        """The leaves that the program takes, of those given."""
        raise NotImplementedError("FlatArgsAdapter: a subclass says how inputs are adapted")

    def get_flat_arg_paths(self) -> list[str]:
        """Paths of the inputs that are used."""
        return []


class InterpreterModule(Module):
    """A module whose forward is a part of a program's graph; its arguments are what the part reads, in order."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *args: Any) -> Any:
        """The results that others read: one, or a tuple."""
        return Interpreter(self, graph=self.graph).run(*args)


class UnflattenedModule(InterpreterModule):
    """A program as a tree of modules, called as the program was; parts may be exchanged for others."""

    def __init__(self, export_module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> None:
        whole = unlifted(export_module, False)
        _copy_state(whole)
        super().__init__(Graph())
        self.in_spec, self.out_spec = export_module.call_spec.in_spec, export_module.call_spec.out_spec
        self.adapter, self._check = flat_args_adapter, export_module._check
        self.graph_signature = export_module.graph_signature
        steps = [node for node in whole.graph.nodes if node.op == "call_function"]
        self.graph = _Part(self, whole, "", steps).graph()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the program returns."""
        assert self.in_spec is not None and self.out_spec is not None
        if self.adapter is not None:
            from tesserack.utils._pytree import tree_flatten

            given, spec = tree_flatten((args, kwargs))
            leaves = self.adapter.adapt(self.in_spec, spec, given, {}, self) if spec != self.in_spec else given
        else:
            leaves = flat_inputs(self.in_spec, args, kwargs)
        self._check(leaves)
        return tree_unflatten(list(super().forward(*leaves)), self.out_spec)


class _Part:
    """The steps of one call of a module, as a graph; parts of it that are calls of others become modules of theirs."""

    def __init__(self, module: Module, whole: GraphModule, path: str, steps: Sequence[Node]) -> None:
        self.module, self.whole, self.path, self.steps = module, whole, path, steps
        self.made = Graph()
        self.values: dict[Node, Node] = {}

    def graph(self) -> Graph:
        """All of the program."""
        output = self.whole.graph.output_node()
        for node in self.whole.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.made.node_copy(node)
        for name, tensor in _held(self.whole):
            place(self.module, name, tensor, _is_saved(self.whole, name))
        self._fill()
        self.made.output(_mapped(output.args[0], self._read))
        return self.made

    def part(self, read: Sequence[Node], given: Sequence[Node]) -> Graph:
        """One call: what it reads of others, and what others read of it."""
        for node in read:
            self.values[node] = self.made.create_node("placeholder", node.name, name=node.name)
            self.values[node].meta = {**node.meta}
        self._fill()
        results = tuple(self.values[node] for node in given)
        self.made.output(results[0] if len(results) == 1 else results)
        return self.made

    def _fill(self) -> None:
        for child, steps in _groups(self.steps, self.path):
            if child is None:
                for node in steps:
                    self.values[node] = self.made.node_copy(node, self._read)
            else:
                self._call(child, steps)

    def _read(self, node: Node) -> Node:
        """The value of a node of the program: what the module itself holds is read from it."""
        if node not in self.values:
            target = str(node.target)
            own = _own(self.path)
            name = target.removeprefix(f"{own}.") if own else target
            value = _attribute(self.whole, target)
            if isinstance(value, GraphModule):
                self.module.add_module(target, value)
                name = target
            elif own and _there_is(self.module, name) is not value:
                place(self.module, name, value, _is_saved(self.whole, target))
            self.values[node] = self.made.create_node("get_attr", name)
        return self.values[node]

    def _free(self, name: str) -> str:
        """The name of a further call of a module: calls from elsewhere in the tree count, too."""
        times, found = 0, name
        while isinstance(_there(self.module, found), InterpreterModule):
            times += 1
            found = f"{name}@{times}"
        return found

    def _call(self, path: str, steps: list[Node]) -> None:
        inside = {*steps}
        own = f"{_own(path)}."
        read: dict[Node, None] = {}
        for node in steps:
            for source in node.all_input_nodes:
                held = source.op == "get_attr" and (
                    str(source.target).startswith(own) or isinstance(_attribute(self.whole, source.target), GraphModule)
                )
                if source not in inside and not held:
                    read[source] = None
        given = [node for node in steps if any(user not in inside for user in node.users)]
        name = _own(path).removeprefix(f"{_own(self.path)}.") if self.path else _own(path)
        name = self._free(name)
        child = InterpreterModule(Graph())
        _add(self.module, name, child)
        child.graph = _Part(child, self.whole, path, steps).part([*read], given)
        call = self.made.create_node("call_module", name, tuple(map(self._read, read)), {}, name=name.replace(".", "_"))
        if len(given) == 1:
            self.values[given[0]] = call
            return
        for place_, node in enumerate(given):
            self.values[node] = self.made.create_node("call_function", operator.getitem, (call, place_), {})


def _held(module: Module) -> list[tuple[str, Any]]:
    parameters, buffers = (
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    )
    return [*parameters, *buffers]


def _is_saved(module: Module, name: str) -> bool:
    """Whether state of that name stands in the module's ``state_dict``."""
    parent, _, last = name.rpartition(".")
    return last not in module.get_submodule(parent)._non_persistent_buffers_set


def _there_is(module: Module, name: str) -> Any:
    parent, _, last = name.rpartition(".")
    holder = _there(module, parent) if parent else module
    return getattr(holder, last, None)


def _copy_state(module: Module) -> None:
    """Give a module state of its own: the tree trains apart from the program. One tensor of two names stays one."""
    copies: dict[int, Any] = {}
    for name, tensor in _held(module):
        if id(tensor) not in copies:
            copy = tensor.detach().clone()
            copies[id(tensor)] = Parameter(copy, tensor.requires_grad) if isinstance(tensor, Parameter) else copy
        place(module, name, copies[id(tensor)], _is_saved(module, name))


def _path(node: Node) -> list[str]:
    """The modules that a step is from, the outermost first."""
    return [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]


def _groups(steps: Sequence[Node], path: str) -> Iterator[tuple[str | None, list[Node]]]:
    """Steps of the module itself, and calls of others, in order. A call comes in one group, or in several where steps
    of others lie between."""
    current: str | None = None
    group: list[Node] = []
    for node in steps:
        paths = _path(node)
        at = paths.index(path) + 1 if path in paths else 0
        child = paths[at] if at < len(paths) else None
        if group and child != current:
            yield current, group
            group = []
        current = child
        group.append(node)
    if group:
        yield current, group


def _own(path: str) -> str:
    """The module that a call is of."""
    return ".".join(part.partition("@")[0] for part in path.split("."))


def _add(module: Module, name: str, child: Module) -> None:
    *parents, last = name.split(".")
    for part in parents:
        if part not in module._modules:
            module.add_module(part, Module())
        module = module._modules[part]
    before = module._modules.get(last)
    if before is not None:  # parameters that were put there stay
        for key, value in before._parameters.items():
            child.register_parameter(key, value)
        for key, buffer in before._buffers.items():
            child.register_buffer(key, buffer, key not in before._non_persistent_buffers_set)
        for key, inner in before._modules.items():
            child.add_module(key, inner)
    module._modules[last] = child


def _there(root: Module, path: str) -> Module | None:
    at: Module | None = root
    for part in path.split("."):
        at = at._modules.get(part) if at is not None else None
    return at


def _attribute(root: Any, path: Any) -> Any:
    for part in str(path).split("."):
        root = getattr(root, part)
    return root


def _mapped(tree: Any, f: Any) -> Any:
    from tesserack.fx.node import map_arg

    return map_arg(tree, f)


def unflatten(module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> UnflattenedModule:
    """A program as a tree of modules again, by the names that they had: ``get_submodule`` finds the part of each.

    A module that the program calls again is a further one, ``name@1``, of the same parameters.

    >>> import tesserack as ts
    >>> from tesserack.export import export, unflatten
    >>> net = ts.nn.Sequential(ts.nn.Linear(3, 4), ts.nn.ReLU())
    >>> tree = unflatten(export(net, (ts.ones(2, 3),)))
    >>> [name for name, _ in tree.named_children()], tree(ts.ones(2, 3)).shape
    (['0', '1'], tesserack.Size([2, 4]))
    """
    return UnflattenedModule(module, flat_args_adapter)
