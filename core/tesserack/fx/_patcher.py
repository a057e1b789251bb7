"""Names that mean something else while a program is traced, and mean again what they did afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["Patcher", "current_patchers", "reverted"]

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
