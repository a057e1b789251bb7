"""Every operator of the registry by name, hidden ones included: ``tesserack.ops.basic_index``.

Custom operators stand in the namespace of their name: ``tesserack.ops.mylib.myop``. A name that is neither, but that of
an installed plugin, loads the plugin first: it may bring the operator or namespace.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tesserack import _native
from tesserack._registry import operators

__all__: list[str] = []


def _namespace(name: str) -> SimpleNamespace | None:
    if not _native._custom_operators():
        return None
    from tesserack import library

    found = library.in_namespace(name)
    return SimpleNamespace(**found) if found else None


def _find(name: str) -> Any:
    return operators().get(name) or _namespace(name)


def __getattr__(name: str) -> Any:
    found = _find(name)
    if found is None and not name.startswith("_"):
        from tesserack import plugins

        found = _find(name) if plugins.load_if_new(name) else None
    if found is None:
        raise AttributeError(f"tesserack.ops: no operator named {name!r}")
    return found


def __dir__() -> list[str]:
    return sorted(operators())
