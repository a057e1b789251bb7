"""``torch._VF``: the operators that ``torch`` shows."""

from __future__ import annotations

from typing import Any

from tesserack.compat.shims._C._variables import find

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    return find(name)
