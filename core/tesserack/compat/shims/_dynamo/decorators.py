"""``torch._dynamo.decorators``: what marks functions and tensors."""

from __future__ import annotations

from typing import Any

from tesserack.jit.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    set_stance,
    substitute_in_graph,
)

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "disable",
    "disallow_in_graph",
    "dont_skip_tracing",
    "forbid_in_graph",
    "graph_break",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nonstrict_trace",
    "set_stance",
    "skip_frame",
    "substitute_in_graph",
]


def graph_break(msg: str = "") -> None:
    """What calls it runs as plain Python."""
    from tesserack.jit._compile.watch import tell

    tell(f"graph_break is called{f': {msg}' if msg else ''}")


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Nothing: there is a graph for every shape."""


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Nothing: there is a graph for every shape."""


def mark_static(t: Any, index: Any = None) -> Any:
    """Nothing: there is a graph for every shape. A class of modules, which this decorates, is given back."""
    return t if isinstance(t, type) else None


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Nothing: no graph keeps addresses."""


def mark_unbacked(t: Any, index: Any, **options: Any) -> None:
    """Nothing: there is a graph for every shape."""


def nonstrict_trace(traceable_fn: Any) -> Any:
    """The function, whose code is trusted to only compute."""
    return allow_in_graph(traceable_fn)


def dont_skip_tracing(fn: Any = None) -> Any:
    """The function itself; without one, a decorator."""
    return fn if fn is not None else lambda function: function


def skip_frame(msg: str = "") -> None:
    """What calls it runs as plain Python."""
    graph_break(msg)


def disallow_in_graph(fn: Any) -> Any:
    """The function, or the functions of a list, each no part of graphs."""
    return [disable(each) for each in fn] if isinstance(fn, (list, tuple)) else disable(fn)


forbid_in_graph = disallow_in_graph
