"""``torch._dynamo``: what ``tesserack.compile`` has, under the names of PyTorch's compiler."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tesserack.compat.shims._dynamo import backends, config, exc, testing, utils
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

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "backends",
    "config",
    "disable",
    "disallow_in_graph",
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
    "maybe_mark_dynamic",
    "optimize",
    "optimize_assert",
    "register_backend",
    "reset",
    "reset_code_caches",
    "run",
    "set_stance",
    "substitute_in_graph",
    "testing",
    "utils",
]

external_utils = SimpleNamespace(is_compiling=is_compiling)


def optimize(
    backend: Any = "inductor", *, nopython: bool = False, dynamic: bool | None = None, disable: bool = False, **_: Any
) -> Callable[[Any], Any]:
    """A decorator: :func:`tesserack.compile` with this backend; ``nopython`` is its ``fullgraph``."""
    return lambda function: compile(function, backend=backend, fullgraph=nopython, dynamic=dynamic, disable=disable)


def optimize_assert(backend: Any = "inductor", **options: Any) -> Callable[[Any], Any]:
    """:func:`optimize` to one graph."""
    return optimize(backend, nopython=True, **options)


def is_dynamo_supported() -> bool:
    """Always True: functions run everywhere."""
    return True


def disallow_in_graph(fn: Any) -> Any:
    """The function, or the functions of a list, each no part of graphs."""
    return [disable(each) for each in fn] if isinstance(fn, (list, tuple)) else disable(fn)


forbid_in_graph = disallow_in_graph


def graph_break(msg: str = "") -> None:
    """What calls it runs as plain Python."""
    from tesserack.jit._compile.watch import tell

    tell(f"graph_break is called{f': {msg}' if msg else ''}")


def export(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """``NotImplementedError``: export by ``torch.export.export``."""
    raise NotImplementedError("torch._dynamo.export: use torch.export.export, or a backend that keeps its graph")


def reset_code_caches() -> None:
    """Have every compiled function forget its graphs."""
    reset()


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Nothing: there is a graph for every shape."""


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Nothing: there is a graph for every shape."""


def mark_static(t: Any, index: Any = None) -> None:
    """Nothing: there is a graph for every shape."""


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Nothing: no graph keeps addresses."""


def run(fn: Any = None) -> Any:
    """The function itself; without one, a decorator."""
    return fn if fn is not None else lambda function: function
