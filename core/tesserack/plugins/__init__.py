"""Plugins that bring anything but devices: operators, dispatch keys, commands, checks, communicators.

A package names a module under the entry-point group ``tesserack.plugins``; functions in it whose names begin with
``tesserack_`` are hooks, described in :mod:`tesserack.plugins.hooks`. Nothing is imported with Tesserack: plugins are
loaded by :func:`load`, by the command line, and one by one when ``tesserack.ops.<plugin's name>`` is first used.

>>> import tesserack as ts
>>> ts.plugins.load()
>>> ts.plugins.failures()
{}
"""

from __future__ import annotations

from typing import Any

from tesserack.plugins._collect import autocast_lists, communicators, compilers, trackers
from tesserack.plugins._errors import PluginError
from tesserack.plugins._finding import Finding
from tesserack.plugins._loading import failures, installed, load, load_if_new, loaded

__all__ = [
    "Finding",
    "PluginError",
    "autocast_lists",
    "communicators",
    "compilers",
    "failures",
    "hookimpl",
    "installed",
    "load",
    "load_if_new",
    "loaded",
    "trackers",
]


def __getattr__(name: str) -> Any:
    if name == "hookimpl":  # pluggy is imported by those who use it
        from tesserack.plugins.hooks import hookimpl

        return hookimpl
    raise AttributeError(f"module 'tesserack.plugins' has no attribute {name!r}")
