"""``torch._C._fft``: where functions of ``torch.fft`` are in pickles of PyTorch, by their operators' names."""

from __future__ import annotations

from typing import Any

from tesserack.ops import fft

__all__: list[str] = []


def __dir__() -> list[str]:
    return [f"fft_{name}" for name in fft.__all__]


def __getattr__(name: str) -> Any:
    shown = name.removeprefix("fft_")
    if name.startswith("fft_") and shown in fft.__all__:
        return getattr(fft, shown)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
