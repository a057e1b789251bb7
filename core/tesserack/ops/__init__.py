"""Every operator of the registry by name, hidden ones included: ``tesserack.ops.basic_index``."""

from __future__ import annotations

from typing import Any

from tesserack._registry import operators

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    try:
        return operators()[name]
    except KeyError:
        raise AttributeError(f"tesserack.ops: no operator named {name!r}") from None


def __dir__() -> list[str]:
    return sorted(operators())
