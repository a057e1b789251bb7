"""Switches that can be set and change nothing."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable
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
        return _Patched(module, *args, **changes)

    return patch, Settings().__getattr__


class _Patched(contextlib.ContextDecorator):
    """Within it, or in functions and ``unittest.TestCase`` classes that it decorates, switches have other values."""

    def __init__(self, module: str, *args: Any, **changes: Any) -> None:
        self.module = module
        self.given = {**(args[0] if args and isinstance(args[0], dict) else {}), **changes}
        if len(args) == 2:
            self.given[args[0]] = args[1]
        self.before: list[dict[str, Any]] = []  # of each time that it was entered

    def __enter__(self) -> None:
        target = sys.modules[self.module]
        self.before.append({name: vars(target)[name] for name in self.given if name in vars(target)})
        for name, value in self.given.items():
            setattr(target, name, value)

    def __exit__(self, *error: object) -> None:
        target, before = sys.modules[self.module], self.before.pop()
        for name in self.given:
            setattr(target, name, before[name]) if name in before else delattr(target, name)

    def __call__(self, func: Any) -> Any:
        """The function, or the class of tests, all of which run within."""
        if not isinstance(func, type):
            return super().__call__(func)
        import unittest

        if not issubclass(func, unittest.TestCase):
            raise TypeError(f"patch: expected a function or a unittest.TestCase to decorate, got {func.__name__}")
        body: dict[str, Any] = {"__module__": func.__module__, "__qualname__": func.__qualname__}

        def set_up(cls: Any) -> None:
            self.__enter__()
            cls.addClassCleanup(self.__exit__)
            super(made, cls).setUpClass()  # type: ignore[misc]

        body["setUpClass"] = classmethod(set_up)
        made: Any = types.new_class(func.__name__, (func,), exec_body=lambda space: space.update(body))
        return made
