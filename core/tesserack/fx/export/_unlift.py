"""An exported program as a module: parameters and buffers are its own again, and what was written is written back."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.aten.operators import namespace
from tesserack.fx._codegen import PyTreeCodeGen, PyTreeInfo
from tesserack.fx.export._ranges import InputCheck, flat_inputs
from tesserack.fx.export.graph_signature import InputKind, OutputKind
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_arg
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter
from tesserack.utils._pytree import TreeSpec

__all__ = ["ExportedModule", "place", "unlifted"]

aten = namespace("aten")
_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


class ExportedModule(GraphModule):
    """A module that runs an exported program, called as the program was."""

    _check: InputCheck | None
    _of_arguments: TreeSpec
    _flat: int  # how many arguments there are, where all are leaves; else -1
    _of_results: TreeSpec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        flat = len(args) == self._flat and not kwargs and all(isinstance(arg, Tensor) for arg in args)
        leaves = [*args] if flat else flat_inputs(self._of_arguments, args, kwargs)
        if self._check is not None:
            self._check(leaves)
        return super().__call__(*args, **kwargs)

    def train(self, mode: bool = True) -> Any:
        """``NotImplementedError``: what the program does in training was decided when it was exported."""
        raise NotImplementedError(
            f"Calling {'train' if mode else 'eval'}() is not supported yet: what an exported program does in training "
            "was decided when it was exported"
        )

    def eval(self) -> Any:
        """``NotImplementedError``, as :meth:`train`."""
        return self.train(False)


def unlifted(ep: Any, check: bool, kind: type[ExportedModule] = ExportedModule) -> GraphModule:
    """The module of a program."""
    root, graph = Module(), Graph()
    for name, child in ep.graph_module.named_children():
        root.add_module(name, child)
    specs = {spec.arg.name: spec for spec in ep.graph_signature.input_specs}
    placeholders = [node for node in ep.graph.nodes if node.op == "placeholder"]
    inputs = [node for node in placeholders if specs[node.name].kind is InputKind.USER_INPUT]
    written = {spec.target for spec in ep.graph_signature.output_specs if spec.kind in _WRITES}
    values: dict[Node, Node] = {node: graph.node_copy(node) for node in inputs}
    targets = {node.name: value for node, value in values.items()}  # what results may be written to, by name
    for node in placeholders:
        spec = specs[node.name]
        if spec.kind is InputKind.USER_INPUT:
            continue
        place(root, spec.target, ep.held(spec), spec.persistent is True)
        if node.users or spec.target in written:
            made = graph.create_node("get_attr", spec.target, name=spec.target.replace(".", "_"))
            made.meta = {**node.meta}
            values[node] = targets[spec.target] = made
    for node in ep.graph.nodes:
        if node.op == "output":
            _output(ep, graph, map_arg(node.args[0], lambda n: values[n]), targets)
        elif node.op != "placeholder":
            values[node] = graph.node_copy(node, lambda n: values[n])
    if kind is ExportedModule:
        graph.set_codegen(PyTreeCodeGen(PyTreeInfo(_names(ep), ep.call_spec.in_spec, ep.call_spec.out_spec)))
    return _module(ep, kind(root, graph, "ExportedModule"), check)


def _names(ep: Any) -> list[str]:
    """The names of the arguments, also of a program with *args."""
    positional, keywords = ep.call_spec.in_spec.children_specs
    names = ep.module_call_graph[0].signature.forward_arg_names or []
    if len(names) == positional.num_children + keywords.num_children:
        return [*names]
    return [*(f"arg_{k}" for k in range(positional.num_children)), *keywords.context]


def _module(ep: Any, made: ExportedModule, check: bool) -> GraphModule:
    for spec in ep.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            place(made, spec.target, ep.held(spec), spec.persistent is True)
    named = {*ep.graph_signature.parameters, *ep.graph_signature.buffers}
    for name, value in ep.state_dict.items():
        if name not in named:  # another name of the same tensor, or state that is no tensor
            place(made, name, value, True)
    own = made.__dict__
    own["_check"] = ep._check if check else None
    positional, keywords = ep.call_spec.in_spec.children_specs
    nested = keywords.num_children or not all(child.is_leaf() for child in positional.children_specs)
    own["_flat"] = -1 if nested else positional.num_children
    own["_of_arguments"], own["_of_results"] = ep.call_spec.in_spec, ep.call_spec.out_spec
    return made


def _output(ep: Any, graph: Graph, results: Any, targets: dict[str, Node]) -> None:
    """New values go where they belong, then the program's results follow."""
    count = 0
    for spec, value in zip(ep.graph_signature.output_specs, results, strict=True):
        if spec.kind in _WRITES:
            count += 1
            graph.create_node("call_function", aten.copy_.default, (targets[spec.target], value), {}, name="copy_")
    graph.create_node("output", "output", (tuple(results[count:]),), {})


def place(root: Module, path: str, value: Any, persistent: bool) -> None:
    """Put a tensor into a tree of modules."""
    *parents, last = path.split(".")
    module = root
    for part in parents:
        if part not in module._modules:
            module.add_module(part, Module())
        module = module._modules[part]
    for registry in (module._parameters, module._buffers):
        registry.pop(last, None)
    if isinstance(value, Parameter):
        module.register_parameter(last, value)
    else:
        module.register_buffer(last, value, persistent)
