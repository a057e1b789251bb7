"""A module whose class becomes a subclass that does more."""

from __future__ import annotations

from typing import Any

from tesserack.nn import Module

__all__ = ["swapped"]

_classes: dict[tuple[type, type], type] = {}


def swapped(module: Module, extra: type, prefix: str) -> None:
    """Let a module be of ``extra`` too, whose methods come first. ``ValueError`` where it is already."""
    cls: Any = type(module)
    if isinstance(module, extra):
        raise ValueError(f"{cls.__name__}: {extra.__name__} has been applied to it already")
    if (cls, extra) not in _classes:
        _classes[cls, extra] = type(f"{prefix}{cls.__name__}", (extra, cls), {"__module__": cls.__module__})
    module.__class__ = _classes[cls, extra]
