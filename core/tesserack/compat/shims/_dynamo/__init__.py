"""``torch._dynamo``: nothing is compiled; its switches can be set and change nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tesserack.compat.shims._dynamo import config, utils
from tesserack.jit.compiler import (
    OptimizedModule,
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
    set_stance,
    substitute_in_graph,
)

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "disallow_in_graph",
    "explain",
    "external_utils",
    "graph_break",
    "is_compiling",
    "is_dynamo_supported",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "optimize",
    "reset",
    "run",
    "set_stance",
    "substitute_in_graph",
    "utils",
]

external_utils = SimpleNamespace(is_compiling=is_compiling)


def optimize(*args: Any, **kwargs: Any) -> Any:
    """A decorator that changes nothing."""
    return lambda function: function


def is_dynamo_supported() -> bool:
    """Always False."""
    return False


def disallow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


def graph_break(msg: str = "") -> None:
    """Nothing: there is no graph."""


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Nothing: shapes are never fixed."""


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Nothing: shapes are never fixed."""


def mark_static(t: Any, index: Any = None) -> None:
    """Nothing: shapes are never fixed."""


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Nothing: there is no graph that keeps addresses."""


def run(fn: Any = None) -> Any:
    """The function itself; without one, a decorator."""
    return fn if fn is not None else lambda function: function


def explain(f: Any, *args: Any, **kwargs: Any) -> Any:
    """``NotImplementedError``: there is no graph to explain."""
    raise NotImplementedError("torch._dynamo.explain: nothing is compiled")
