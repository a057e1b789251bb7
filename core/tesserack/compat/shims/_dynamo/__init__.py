"""``torch._dynamo``: nothing is compiled; its switches can be set and change nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tesserack.compat.shims._dynamo import config, utils
from tesserack.compiler import allow_in_graph, disable, is_compiling, list_backends, reset
from tesserack.nn.modules.module import Module

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
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
    "maybe_mark_dynamic",
    "optimize",
    "reset",
    "utils",
]

external_utils = SimpleNamespace(is_compiling=is_compiling)


class OptimizedModule(Module):
    """What ``torch.compile`` makes of modules in PyTorch; here nothing is one."""


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


def explain(f: Any, *args: Any, **kwargs: Any) -> Any:
    """``NotImplementedError``: there is no graph to explain."""
    raise NotImplementedError("torch._dynamo.explain: nothing is compiled")
