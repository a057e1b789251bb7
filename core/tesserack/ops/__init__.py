"""Every operator of the registry by name, hidden ones included: ``tesserack.ops.basic_index``.

A name that is none, but that of an installed plugin, loads the plugin first: it may bring the operator or namespace.
"""

from __future__ import annotations

from typing import Any

from tesserack._registry import operators

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    found = operators().get(name)
    if found is None and not name.startswith("_"):
        from tesserack import plugins

        found = operators().get(name) if plugins.load_if_new(name) else None
    if found is None:
        raise AttributeError(f"tesserack.ops: no operator named {name!r}")
    return found


def __dir__() -> list[str]:
    return sorted(operators())
