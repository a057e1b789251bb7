"""Functions that become nodes when they are given a proxy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tesserack.fx._aggregate import map_aggregate
from tesserack.fx._written import as_written
from tesserack.fx.proxy import Proxy

__all__ = ["keeping_call", "keeping_method"]


def _proxy_in(*values: Any) -> Any:
    found: list[Any] = []
    map_aggregate(values, lambda value: found.append(value) if isinstance(value, Proxy) else None)
    return found[0] if found else None


def keeping_call(function: Callable[..., Any], mark: bool = False) -> Callable[..., Any]:
    """The function, which given a proxy becomes a node and does not run; ``mark`` is noted at the node."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxy = _proxy_in(args, kwargs)
        if proxy is None:
            return function(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", function, *as_written(function, args, kwargs))
        if mark:
            made.node.meta["is_wrapped"] = True
        return made

    return call


def keeping_method(cls: type, name: str) -> Callable[..., Any]:
    """A method that given a proxy becomes a node and does not run."""
    function = getattr(cls, name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxy = _proxy_in(args, kwargs)
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_method", name, args, kwargs)

    return call
