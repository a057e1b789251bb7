"""Switches that can be set and change nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Settings", "switches"]


class Settings:
    """Attributes of any name; those that were not set are None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def switches(module: str) -> tuple[Callable[..., Any], Callable[[str], Any]]:
    """``patch`` and ``__getattr__`` of a module of switches: any can be set, None stands for the others."""

    def patch(*args: Any, **changes: Any) -> Any:
        """A context, or decorator, with other switches."""
        return _patched(module, *args, **changes)

    return patch, Settings().__getattr__


@contextlib.contextmanager
def _patched(module: str, *args: Any, **changes: Any) -> Iterator[None]:
    """Within it, switches of a module have other values."""
    target = sys.modules[module]
    given = {**(args[0] if args and isinstance(args[0], dict) else {}), **changes}
    if len(args) == 2:
        given[args[0]] = args[1]
    before = {name: vars(target)[name] for name in given if name in vars(target)}
    for name, value in given.items():
        setattr(target, name, value)
    try:
        yield
    finally:
        for name in given:
            setattr(target, name, before[name]) if name in before else delattr(target, name)
