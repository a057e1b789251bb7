"""``torch._C._special``: where functions of ``torch.special`` are in pickles of PyTorch, by operators' names."""

from __future__ import annotations

from typing import Any

from tesserack.ops import special

__all__: list[str] = []


def __dir__() -> list[str]:
    return [f"special_{name}" for name in special.__all__]


def __getattr__(name: str) -> Any:
    shown = name.removeprefix("special_")
    if name.startswith("special_") and shown in special.__all__:
        return getattr(special, shown)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
