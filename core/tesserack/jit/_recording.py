"""One run of a program, written down: what ``trace`` calls, for functions and for methods of modules."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tesserack
from tesserack import Tensor, _native
from tesserack.jit import _sizes
from tesserack.jit._apart import apart
from tesserack.jit._functions import FunctionCall, FunctionCalls
from tesserack.jit._script import TracerWarning
from tesserack.nn.modules._hooks import register_module_forward_hook, register_module_forward_pre_hook
from tesserack.nn.modules.module import Module
from tesserack.utils import _pytree as pytree

__all__ = ["Recording", "record"]

_PACKAGE = os.path.dirname(os.path.abspath(tesserack.__file__)) + os.sep
_CONTAINER = (
    "Encountering a {} at the output of the tracer might cause the trace to be incorrect, this is only valid if the "
    "container structure does not change based on the module's inputs. Consider using a constant container instead "
    "(e.g. for `list`, use a `tuple` instead. for `dict`, use a `NamedTuple` instead). If you absolutely need this and "
    "know the side effects, pass strict=False to trace() to allow this behavior."
)


class Recording:
    """A graph, and how arguments and results are laid out around it."""

    def __init__(self, graph: _native._Graph, names: list[str], given: Any, gave: Any, output: Any) -> None:
        self.graph, self.names = graph, names
        self.given, self.gave = given, gave  # trees
        self.output = output  # of the traced run
        self.calls: list[FunctionCall] = []  # of functions with gradients of their own


def warn_where_it_stands(text: str) -> None:
    """A TracerWarning at the innermost line that is not the package's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    warnings.warn_explicit(text, TracerWarning, frame.f_code.co_filename, frame.f_lineno)


def _cloned(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.detach().clone().requires_grad_(leaf.requires_grad)


def _arguments(leaves: list[Any]) -> list[Tensor]:
    """Copies of the leaves, which are all tensors. ``RuntimeError``"""
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(
                f"jit.trace: Type '{type(leaf).__name__}' cannot be traced as an argument. Only Tensors and (possibly "
                "nested) Lists, Dicts, and Tuples of Tensors can be traced"
            )
    return [_cloned(leaf) for leaf in leaves]


def _results(leaves: list[Any]) -> list[Tensor]:
    """The leaves, which are tensors, or become tensors as numbers that follow from sizes. ``RuntimeError``"""
    leaves = [tesserack.tensor(leaf) if isinstance(leaf, _sizes.Number) else leaf for leaf in leaves]
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(
                f"jit.trace: Type '{type(leaf).__name__}' cannot be traced as a result. Only tensors, and (possibly "
                "nested) lists, dicts and tuples of tensors can be output from traced functions"
            )
    return leaves


@contextmanager
def _module_paths(tracer: _native._Tracer, module: Module | None) -> Iterator[None]:
    """The modules that run, by name, as scopes of what they call."""
    if module is None:
        yield
        return
    paths = {id(part): name for name, part in module.named_modules()}

    def enter(part: Any, args: Any) -> None:
        tracer.enter_module(paths.get(id(part), type(part).__name__))

    def leave(part: Any, args: Any, output: Any) -> None:
        tracer.leave_module()

    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def record(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: list[str],
    strict: bool,
    module: Module | None = None,
) -> Recording:
    """Run ``function`` on copies of the arguments and write down what it does.

    ``names``: of the tensors among the arguments. ``RuntimeError`` for arguments and results that are no tensors or
    containers of tensors, and, where ``strict``, for lists and dicts as results.
    """
    leaves, given = pytree.tree_flatten(apart((args, kwargs), history=False))
    leaves = _arguments(leaves)
    own_args, own_kwargs = pytree.tree_unflatten(leaves, given)
    tracer = _native._Tracer(_PACKAGE, warn_where_it_stands)
    for leaf, name in zip(leaves, names, strict=True):
        tracer.add_input(leaf, name)
    _native._clear_autocast_cache()  # of weights that were cast before: a run casts those of then
    functions = FunctionCalls()
    tracer.begin()
    try:
        with functions.taking(), _module_paths(tracer, module):
            output = function(*own_args, **own_kwargs)
        leaves, gave = pytree.tree_flatten(apart(output))
        results = _results(leaves)
        if strict and isinstance(output, (list, dict)):
            raise RuntimeError(_CONTAINER.format(type(output).__name__))
        graph = tracer.end(results)
    finally:
        tracer.cancel()
    recording = Recording(graph, names, given, gave, pytree.tree_unflatten(results, gave))
    recording.calls = functions.calls
    return recording
