"""``torch._dynamo``: what ``tesserack.compile`` has, under the names of PyTorch's compiler."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tesserack.compat.shims._dynamo import (
    backends,
    config,
    decorators,
    eval_frame,
    exc,
    external_utils,
    testing,
    utils,
)
from tesserack.compat.shims._dynamo.decorators import (
    disallow_in_graph,
    dont_skip_tracing,
    forbid_in_graph,
    graph_break,
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    nonstrict_trace,
    skip_frame,
)
from tesserack.compat.shims._dynamo.eval_frame import is_dynamo_supported
from tesserack.fx.export import export as _exported
from tesserack.jit._compile.backends import list_backends, lookup_backend, register_backend
from tesserack.jit.compiler import (
    OptimizedModule,
    allow_in_graph,
    assume_constant_result,
    compile,
    disable,
    explain,
    is_compiling,
    reset,
    set_stance,
    substitute_in_graph,
)
from tesserack.nn.modules.module import Module

__all__ = [
    "ExportResult",
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "backends",
    "config",
    "decorators",
    "disable",
    "disallow_in_graph",
    "dont_skip_tracing",
    "error_on_graph_break",
    "eval_frame",
    "exc",
    "explain",
    "export",
    "external_utils",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "is_dynamo_supported",
    "list_backends",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nonstrict_trace",
    "optimize",
    "optimize_assert",
    "patch_dynamo_config",
    "register_backend",
    "reset",
    "reset_code_caches",
    "reset_recompile_user_contexts",
    "run",
    "set_recursion_limit",
    "set_stance",
    "skip_frame",
    "substitute_in_graph",
    "testing",
    "utils",
]


def optimize(
    backend: Any = "inductor", *, nopython: bool = False, dynamic: bool | None = None, disable: bool = False, **_: Any
) -> Callable[[Any], Any]:
    """A decorator: :func:`tesserack.compile` with this backend; ``nopython`` is its ``fullgraph``."""
    return lambda function: compile(function, backend=backend, fullgraph=nopython, dynamic=dynamic, disable=disable)


def optimize_assert(backend: Any = "inductor", **options: Any) -> Callable[[Any], Any]:
    """:func:`optimize` to one graph."""
    return optimize(backend, nopython=True, **options)


class ExportResult(NamedTuple):
    """A program as a module, called as what it was made of; it is of its sizes without more guards."""

    graph_module: Any
    guards: Any


class _Called(Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        owner = getattr(function, "__self__", None)
        if isinstance(owner, Module):
            self.owner = owner
        self.__dict__["forward"] = function


def export(f: Callable[..., Any], *extra_args: Any, dynamic_shapes: Any = None, **options: Any) -> Any:
    """A function of arguments, called at once where there are some: the program that ``f`` is for these, by
    :func:`tesserack.export.export`, as an :class:`ExportResult`. ``options``: ``aten_graph`` and others are taken;
    what is not one of PyTorch's is an argument by name. ``ExportError`` for what cannot be a graph.
    """
    named = {name: options.pop(name) for name in [*options] if name not in _EXPORT_OPTIONS}

    def inner(*args: Any, **kwargs: Any) -> ExportResult:
        module = f if isinstance(f, Module) else _Called(f)
        program = _exported(module, args, kwargs, dynamic_shapes=dynamic_shapes)
        return ExportResult(program.module(), set())

    return inner(*extra_args, **named) if extra_args or named else inner


_EXPORT_OPTIONS = frozenset({
    "aten_graph", "pre_dispatch", "decomposition_table", "tracing_mode", "assume_static_by_default", "same_signature",
    "disable_constraint_solver", "prefer_deferred_runtime_asserts_over_guards", "_log_export_usage", "constraints",
    "allow_complex_guards_as_runtime_asserts",
})  # fmt: skip


def reset_code_caches() -> None:
    """Have every compiled function forget its graphs."""
    reset()


@contextlib.contextmanager
def error_on_graph_break(error_on_graph_break: bool) -> Iterator[None]:
    """A context that changes nothing: functions become one graph, or none."""
    yield


def patch_dynamo_config(*args: Any, **changes: Any) -> Any:
    """A context, or decorator, with other switches of ``torch._dynamo.config``."""
    return config.patch(*args, **changes)


def set_recursion_limit(limit: int) -> None:
    """Python's own limit. ``ValueError`` unless it is a positive number."""
    if limit < 1:
        raise ValueError(f"set_recursion_limit: expected a positive number, got {limit}")
    sys.setrecursionlimit(limit)


def reset_recompile_user_contexts() -> None:
    """Nothing: there are none."""


def run(fn: Any = None) -> Any:
    """The function itself; without one, a decorator."""
    return fn if fn is not None else lambda function: function
