"""``torch._C._linalg``: where functions of ``torch.linalg`` are in pickles of PyTorch, by their operators' names."""

from __future__ import annotations

from typing import Any

from tesserack.ops import linalg

__all__: list[str] = []


def __dir__() -> list[str]:
    return [f"linalg_{name}" for name in linalg.__all__]


def __getattr__(name: str) -> Any:
    shown = name.removeprefix("linalg_")
    if name.startswith("linalg_") and shown in linalg.__all__:
        return getattr(linalg, shown)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
