"""Every operator of the registry by name, hidden ones included: ``tesserack.ops.basic_index``.

Custom operators stand in the namespace of their name: ``tesserack.ops.mylib.myop``. A name that is neither, but that of
an installed plugin, loads the plugin first: it may bring the operator or namespace.

The modules of this folder are the operators that are written in Python, a file or folder per family.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType, SimpleNamespace

from tesserack import _native
from tesserack.ops.registry import operators

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from typing import Any

__all__: list[str] = []


class _Operators(ModuleType):
    """Shows operators, not the modules that were imported: a namespace of operators may be named as a family is."""

    def __setattr__(self, name: str, value: Any) -> None:
        if sys.modules.get(f"{__name__}.{name}") is not value:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Operators
del globals()["registry"]  # which the import above has set


class OperatorNamespace(SimpleNamespace):
    """Operators that programs have defined, by name."""


def _namespace(name: str) -> OperatorNamespace | None:
    if not _native._custom_operators():
        return None
    from tesserack import library

    found = library.in_namespace(name)
    return OperatorNamespace(**found) if found else None


def _find(name: str) -> Any:
    return operators().get(name) or _namespace(name)


def _is_part(name: str) -> bool:
    """Whether a module of this folder is asked for, which an import finds next; no plugin is loaded for it."""
    return any(os.path.exists(os.path.join(folder, part)) for folder in __path__ for part in (name, f"{name}.py"))


def __getattr__(name: str) -> Any:
    if name == "higher_order":
        return importlib.import_module(f"{__name__}.{name}")
    found = _find(name) or sys.modules.get(f"{__name__}.{name}")
    if found is None and not name.startswith("_") and not _is_part(name):
        from tesserack import plugins

        found = _find(name) if plugins.load_if_new(name) else None
    if found is None:
        raise AttributeError(f"tesserack.ops: no operator named {name!r}")
    return found


def __dir__() -> list[str]:
    return sorted(operators())
