"""Exported programs: a graph of operators, what its inputs and results are, and the tensors that it holds."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

from tesserack import Tensor
from tesserack.aten.operators import namespace
from tesserack.fx.export._errors import InputError
from tesserack.fx.export._ranges import InputCheck, ValueRanges, flat_inputs
from tesserack.fx.export.graph_signature import (
    ConstantArgument,
    CustomObjArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.library.definitions import implicit_kernels
from tesserack.utils._pytree import TreeSpec

__all__ = [
    "CallSpec",
    "CustomDecompTable",
    "ExportedProgram",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "Verifier",
    "default_decompositions",
]

_REEXPORTED = (ConstantArgument, CustomObjArgument, SymIntArgument, TensorArgument, InputKind, OutputKind, OutputSpec,
               InputSpec)  # fmt: skip


class _Tracing:
    """How a program is traced again, which makes a program in turn: told by ``_again.py``."""

    decomposed: Any = None
    table: dict[Any, Any] = {}  # noqa: RUF012


_tracing = _Tracing()


@dataclasses.dataclass
class CallSpec:
    """The structures of arguments and results."""

    in_spec: TreeSpec | None
    out_spec: TreeSpec | None


@dataclasses.dataclass
class ModuleCallSignature:
    """What a module is called with, and what it returns."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: TreeSpec
    out_spec: TreeSpec
    forward_arg_names: list[str] | None = None


@dataclasses.dataclass
class ModuleCallEntry:
    """A module of the program, by its path."""

    fqn: str
    signature: ModuleCallSignature | None = None


class Verifier:
    """Checks that a program is what it says."""

    dialect = "ATEN"

    def check(self, ep: ExportedProgram) -> None:
        """``SpecViolationError`` for a graph with other steps, or one that its signature does not fit."""
        names = {node.name for node in ep.graph.nodes}
        for node in ep.graph.nodes:
            if node.op not in ("placeholder", "call_function", "get_attr", "output"):
                raise SpecViolationError(f"verifier: expected operators only, got {node.op} {node.target}")
            if node.op == "call_function" and "val" not in node.meta:
                raise SpecViolationError(f"verifier: Node.meta {node.name} is missing val field")
        placeholders = [node.name for node in ep.graph.nodes if node.op == "placeholder"]
        told = [spec.arg.name for spec in ep.graph_signature.input_specs]
        if placeholders != told:
            raise SpecViolationError(f"verifier: expected placeholders {told}, got {placeholders}")
        for spec in ep.graph_signature.output_specs:
            if not isinstance(spec.arg, ConstantArgument) and spec.arg.name not in names:
                raise SpecViolationError(f"verifier: expected a node {spec.arg.name!r}, which the signature names")
        ep.graph.lint()


class SpecViolationError(Exception):
    """A program that is not what it says."""


class ExportedProgram:
    """A program as a graph of operators without Python, as :func:`tesserack.export.export` makes it.

    Composed operators stand in the graph as the program calls them, ``aten.linear``, ``aten.layer_norm``;
    :meth:`run_decompositions` takes them apart. There are no writes.

    The graph's arguments are all that it reads: parameters, buffers, constants, then inputs; its results are new values
    of buffers and inputs that were written to, then what the program returns. ``module()`` makes a module of it that is
    called as the program was.
    """

    def __init__(
        self,
        root: Any,
        graph: Graph,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Any],
        range_constraints: dict[str, ValueRanges],
        module_call_graph: list[ModuleCallEntry],
        example_inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
        constants: dict[str, Tensor] | None = None,
        *,
        check: InputCheck,
        verifiers: list[type[Verifier]] | None = None,
    ) -> None:
        self._graph_module = GraphModule(root, graph, "GraphModule")
        self._graph_signature, self._state_dict = graph_signature, state_dict
        self._range_constraints, self._module_call_graph = range_constraints, module_call_graph
        self._example_inputs, self._constants = example_inputs, constants or {}
        self._check = check
        self._report: Any = None  # of a draft: what is not as it was asked for
        self._verifiers = verifiers or [Verifier]
        self.validate()

    @property
    def graph_module(self) -> GraphModule:
        """The graph as a module, whose arguments are all that it reads, one by one."""
        return self._graph_module

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What the graph's arguments and results are."""
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and persistent buffers, by name."""
        return self._state_dict

    @property
    def constants(self) -> dict[str, Any]:
        """Other tensors that the program reads: constants, and buffers that are in no state dict."""
        return self._constants

    @property
    def tensor_constants(self) -> dict[str, Any]:
        """The same as ``constants``."""
        return self._constants

    @property
    def example_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """What the program was exported with: positional arguments, keyword arguments; others of the same structure may
        take their place. ``ValueError`` for what is none."""
        return self._example_inputs

    @example_inputs.setter
    def example_inputs(self, value: tuple[tuple[Any, ...], dict[str, Any]] | None) -> None:
        if value is not None:
            if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], tuple)
                    and isinstance(value[1], dict)):  # fmt: skip
                raise ValueError(
                    f"Example inputs should be a tuple of arguments and a dict, got {type(value).__name__}"
                )
            try:
                flat_inputs(self._check.in_spec, *value)
            except InputError as error:
                raise ValueError(f"example_inputs: {error}") from error
        self._example_inputs = value

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The modules that the program consists of; the first is all of it."""
        return self._module_call_graph

    @property
    def call_spec(self) -> CallSpec:
        """The structures of arguments and results."""
        signature = self._module_call_graph[0].signature
        assert signature is not None
        return CallSpec(signature.in_spec, signature.out_spec)

    @property
    def range_constraints(self) -> dict[str, ValueRanges]:
        """What sizes that vary may be, by name."""
        return self._range_constraints

    @property
    def verifier(self) -> type[Verifier]:
        """The class that checks it."""
        return self._verifiers[0]

    @property
    def verifiers(self) -> list[type[Verifier]]:
        """The classes that check it."""
        return self._verifiers

    @property
    def dialect(self) -> str:
        """What its operators are."""
        return self._verifiers[0].dialect

    def validate(self) -> None:
        """``SpecViolationError`` if the program is not what it says."""
        for verifier in self._verifiers:
            verifier().check(self)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters by name."""
        return ((name, self.state_dict[name]) for name in self.graph_signature.parameters)

    def parameters(self) -> Iterator[Tensor]:
        """Parameters."""
        return (value for _, value in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Buffers by name."""
        hidden = {*self.graph_signature.non_persistent_buffers}
        for name in self.graph_signature.buffers:
            yield name, (self.constants if name in hidden else self.state_dict)[name]

    def buffers(self) -> Iterator[Tensor]:
        """Buffers."""
        return (value for _, value in self.named_buffers())

    def held(self, spec: InputSpec) -> Any:
        """The tensor that a placeholder stands for which is no input of the program's."""
        assert spec.target is not None
        if spec.kind is InputKind.CONSTANT_TENSOR or spec.persistent is False:
            return self.constants[spec.target]
        return self.state_dict[spec.target]

    def module(self, check_guards: bool = True) -> GraphModule:
        """A module that is called as the program was, with copies of nothing: it shares parameters and buffers.

        Inputs are checked against the example's outlines and the ranges of sizes, unless ``check_guards`` is False.
        """
        from tesserack.fx.export._unlift import unlifted

        return unlifted(self, check_guards)

    def run_decompositions(
        self, decomp_table: dict[Any, Any] | None = None, decompose_custom_triton_ops: bool = False
    ) -> ExportedProgram:
        """The program with operators made of others, by functions in a table; the default one without a table."""
        table = default_decompositions() if decomp_table is None else decomp_table
        return _tracing.decomposed(self, table)  # type: ignore[no-any-return]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedProgram:
        made = object.__new__(ExportedProgram)
        made.__dict__.update({**self.__dict__})
        made._graph_module = copy.deepcopy(self._graph_module)
        for new, old in zip(made.graph.nodes, self.graph.nodes, strict=True):
            new.name = old.name  # also of one that is called as a builtin function is
        made._graph_signature = copy.deepcopy(self._graph_signature)
        made._state_dict = copy.deepcopy(self._state_dict, memo)
        made._constants = copy.deepcopy(self._constants, memo)
        return made

    def __str__(self) -> str:
        body = "\n    ".join(self._graph_module.print_readable(print_output=False).strip("\n").split("\n"))
        signature = "\n    ".join(str(self.graph_signature).split("\n"))
        ranges = ", ".join(f"{name}: {bounds}" for name, bounds in self.range_constraints.items())
        return f"ExportedProgram:\n    {body}\n\nGraph signature: {signature}\nRange constraints: {{{ranges}}}\n"


class CustomDecompTable(dict[Any, Any]):
    """Functions by the operators that they compute."""

    def materialize(self) -> dict[Any, Any]:
        """The same as a plain dict."""
        return {**self}

    def copy(self) -> CustomDecompTable:
        """One of its own."""
        return CustomDecompTable(self)


def default_decompositions() -> dict[Any, Any]:
    """Operators that exported programs are made without, and what they are made of; may be changed before use.

    >>> from tesserack.compat import torch
    >>> torch.ops.aten.t.default in default_decompositions()
    True
    """
    made = {}
    for name, function in implicit_kernels().items():
        space, _, base = name.partition("::")
        base, _, overload = base.partition(".")
        made[getattr(getattr(namespace(space), base), overload or "default")] = function
    return CustomDecompTable({**_tracing.table, **made})
