"""Names that mean something else while a program is traced, and mean again what they did afterwards."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tesserack.fx._aggregate import map_aggregate
from tesserack.fx._written import as_written

__all__ = ["Patcher", "current_patchers", "keeping_call", "keeping_method", "reverted"]

_MISSING = object()


class Patcher:
    """Entries of dicts and attributes of classes, replaced until :meth:`revert`."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, Any]] = []
        self._visited: set[int] = set()

    def patch(self, space: dict[str, Any], name: str, value: Any) -> None:
        """Replace an entry, or add it; what is replaced already stays."""
        before = space.get(name, _MISSING)
        if id(before) in (id(entry[3]) for entry in self._undo):
            return
        self._undo.append((space, name, before, value))
        space[name] = value

    def patch_method(self, cls: type, name: str, value: Any) -> None:
        """Replace a method of a class."""
        before = vars(cls).get(name, _MISSING)
        self._undo.append((cls, name, before, value))
        setattr(cls, name, value)

    def visit_once(self, thing: Any) -> bool:
        """Whether it is seen for the first time."""
        new = id(thing) not in self._visited
        self._visited.add(id(thing))
        return new

    def revert(self) -> None:
        """Have all names mean what they did."""
        for owner, name, before, _ in reversed(self._undo):
            _put(owner, name, before)

    def reapply(self) -> None:
        """Replace again what was reverted."""
        for owner, name, _, value in self._undo:
            _put(owner, name, value)

    def __enter__(self) -> Patcher:
        current_patchers.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        current_patchers.remove(self)
        self.revert()


current_patchers: list[Patcher] = []


def _put(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, dict):
        if value is _MISSING:
            owner.pop(name, None)
        else:
            owner[name] = value
    elif value is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


@contextlib.contextmanager
def reverted() -> Iterator[None]:
    """Within it, nothing is replaced."""
    for patcher in reversed(current_patchers):
        patcher.revert()
    try:
        yield
    finally:
        for patcher in current_patchers:
            patcher.reapply()


def _proxy_in(*values: Any) -> Any:
    from tesserack.fx.proxy import Proxy

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
