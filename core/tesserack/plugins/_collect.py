"""What loaded plugins contribute, gathered by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tesserack.plugins._errors import PluginError
from tesserack.plugins._loading import call_each

__all__ = ["AUTOCAST", "autocast_lists", "communicators", "compilers", "trackers"]

AUTOCAST = ("lower", "float32", "promote")


def _by_name(hook: str) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    owners: dict[str, str] = {}
    for plugin, given in call_each(hook):
        if not isinstance(given, Mapping) or not all(isinstance(k, str) and callable(v) for k, v in given.items()):
            raise PluginError(f"plugins: {plugin} returned {given!r} from {hook}; expected callables by name")
        for name, value in given.items():
            if name in found:
                raise PluginError(f"plugins: {name!r} is given by {owners[name]} and {plugin}; uninstall one ({hook})")
            found[name], owners[name] = value, plugin
    return found


def communicators() -> dict[str, Callable[..., Any]]:
    """Factories of communicators by name. ``PluginError`` if two plugins give the same name."""
    return _by_name("tesserack_communicators")


def compilers() -> dict[str, Callable[..., Any]]:
    """Graph compilers by name. ``PluginError`` if two plugins give the same name."""
    return _by_name("tesserack_compile")


def trackers() -> dict[str, Callable[..., Any]]:
    """Factories of places for results by name. ``PluginError`` if two plugins give the same name."""
    return _by_name("tesserack_trackers")


def autocast_lists() -> dict[str, list[str]]:
    """Names of operators by autocast category. ``PluginError`` for a category there is not, or an operator in two."""
    lists: dict[str, list[str]] = {category: [] for category in AUTOCAST}
    owners: dict[str, tuple[str, str]] = {}
    for plugin, given in call_each("tesserack_autocast"):
        if not isinstance(given, Mapping) or not {*given} <= {*AUTOCAST}:
            raise PluginError(
                f"plugins: {plugin} returned {given!r} from tesserack_autocast; "
                f"expected names of operators by category: {', '.join(AUTOCAST)}"
            )
        for category, names in given.items():
            for name in names:
                before, owner = owners.setdefault(name, (category, plugin))
                if before != category:
                    raise PluginError(f"plugins: {owner} puts {name!r} under {before!r}, {plugin} under {category!r}")
                if name not in lists[category]:
                    lists[category].append(name)
    return lists
