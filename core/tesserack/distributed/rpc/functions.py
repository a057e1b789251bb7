"""What functions say about how they are called from other processes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["async_execution", "is_asynchronous"]

F = TypeVar("F", bound=Callable[..., Any])


def async_execution(fn: F) -> F:
    """A function that returns a ``Future``: who calls it from another process gets the future's result, and no thread
    waits for it meanwhile. ``staticmethod`` and ``classmethod`` stand around this.

    >>> import tesserack as ts
    >>> @async_execution
    ... def doubled(x):
    ...     return ts.futures.collect_all([]).then(lambda _: 2 * x)
    >>> doubled(3).wait()
    6
    """

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = fn  # type: ignore[attr-defined]
    return wrapper  # type: ignore[return-value]


def is_asynchronous(fn: Any) -> bool:
    """Whether a function, or a method, was marked so."""
    return hasattr(fn, "_wrapped_async_rpc_function")
