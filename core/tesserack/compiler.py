"""PyTorch's switches around compilation. Nothing is compiled: functions run as they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tesserack._switches import compile

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_stance",
    "substitute_in_graph",
]


def is_compiling() -> bool:
    """Always False."""
    return False


def is_dynamo_compiling() -> bool:
    """Always False."""
    return False


def is_exporting() -> bool:
    """Always False."""
    return False


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself; without one, a decorator."""
    return fn if fn is not None else lambda function: function


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function itself."""
    return fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[Any], Any]:
    """A decorator that changes nothing."""
    return lambda function: function


def reset() -> None:
    """Nothing: there is nothing compiled to forget."""


def cudagraph_mark_step_begin() -> None:
    """Nothing: there are no graphs to begin."""


def set_stance(stance: str = "default", **options: Any) -> contextlib.AbstractContextManager[None]:
    """A context that changes nothing."""
    return contextlib.nullcontext()


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """Empty."""
    return []
