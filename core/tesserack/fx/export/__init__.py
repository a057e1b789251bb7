"""Programs without Python: a module's graph of operators, with what its inputs may be, to keep, change and run.

>>> import tesserack as ts
>>> from tesserack.export import Dim, export
>>> batch = Dim("batch", min=2, max=32)
>>> program = export(ts.nn.Linear(3, 4), (ts.ones(2, 3),), dynamic_shapes={"input": {0: batch}})
>>> program.module()(ts.ones(7, 3)).shape
tesserack.Size([7, 4])
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from tesserack.fx.export import _again, dynamic_shapes, exported_program, graph_signature
from tesserack.fx.export._draft import draft_export
from tesserack.fx.export._errors import ExportError, InputError
from tesserack.fx.export._export import exported
from tesserack.fx.export._file import load, save
from tesserack.fx.export.dynamic_shapes import AdditionalInputs, Dim, ShapesCollection, dims
from tesserack.fx.export.exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
    default_decompositions,
)
from tesserack.fx.export.graph_signature import ExportBackwardSignature, ExportGraphSignature
from tesserack.fx.export.unflatten import FlatArgsAdapter, UnflattenedModule, unflatten
from tesserack.nn.modules.module import Module
from tesserack.utils import _pytree

__all__ = [
    "AdditionalInputs",
    "Dim",
    "ExportBackwardSignature",
    "ExportError",
    "ExportGraphSignature",
    "ExportedProgram",
    "FlatArgsAdapter",
    "InputError",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "ShapesCollection",
    "UnflattenedModule",
    "default_decompositions",
    "dims",
    "draft_export",
    "dynamic_shapes",
    "export",
    "export_for_inference",
    "export_for_training",
    "exported_program",
    "graph_signature",
    "load",
    "register_dataclass",
    "save",
    "unflatten",
]


del _again  # which has told programs how they are traced again


def export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """The program that a module is for inputs like these, as a graph of operators.

    The module runs on tensors without data, so that nothing is computed or changed. Sizes are those of the example,
    but for those that ``dynamic_shapes`` lets vary, by names of arguments: ``{"x": {0: Dim("batch", min=2)}}``; the
    program is tried at several of them, and what depends on them in the graph is computed from its inputs. Numbers and
    text among the inputs are part of the program. ``strict`` and the last option change nothing: every program is held
    to the same rules. ``preserve_module_call_signature`` is not done, and warns: modules of :func:`unflatten` take what
    their part of the graph reads.

    Raises:
        ExportError: what cannot be a graph, with the program's line and what to write instead: a branch or size by
            values of tensors, assignments to attributes, NumPy; and sizes that are declared to vary but do not.
        ValueError: ``mod`` is no module, or ``dynamic_shapes`` does not have the structure of the inputs.

    >>> import tesserack as ts
    >>> program = export(ts.nn.ReLU(), (ts.ones(2),))
    >>> [str(node.target) for node in program.graph.nodes]
    ['input', 'aten.relu.default', 'output']
    """
    if not isinstance(mod, Module):
        raise ValueError(f"export: Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise ExportError(f"export: Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if preserve_module_call_signature:
        warnings.warn(
            f"export: preserve_module_call_signature={preserve_module_call_signature!r} has no effect: modules of "
            "unflatten take, by position, the values that their part of the graph reads",
            stacklevel=2,
        )
    return exported(mod, args, kwargs or {}, dynamic_shapes)


export_for_training = export
export_for_inference = export


def register_dataclass(cls: type[Any], *, serialized_type_name: str | None = None) -> None:
    """Let instances of a dataclass be inputs and results of programs, taken apart into their fields.

    >>> import dataclasses
    >>> import tesserack as ts
    >>> @dataclasses.dataclass
    ... class Pair:
    ...     a: ts.Tensor
    ...     b: ts.Tensor
    >>> register_dataclass(Pair, serialized_type_name="Pair")
    >>> class Sum(ts.nn.Module):
    ...     def forward(self, pair):
    ...         return pair.a + pair.b
    >>> export(Sum(), (Pair(ts.ones(2), ts.ones(2)),)).module()(Pair(ts.ones(2), ts.zeros(2)))
    tensor([1., 1.])
    """
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"register_dataclass: Only dataclasses can be registered, got {cls!r}")
    named = serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"
    _pytree.register_dataclass(cls, serialized_type_name=named)
