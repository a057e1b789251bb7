"""``torch.cpu.amp``: the older spellings of ``torch.amp`` for the cpu."""

from __future__ import annotations

from tesserack import _native
from tesserack.amp import GradScaler as _GradScaler
from tesserack.amp import autocast as _autocast

__all__ = ["GradScaler", "autocast"]


class autocast(_autocast):
    """``torch.amp.autocast("cpu", ...)``."""

    def __init__(
        self, enabled: bool = True, dtype: _native.dtype = _native.bfloat16, cache_enabled: bool = True
    ) -> None:
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_GradScaler):
    """``torch.amp.GradScaler("cpu", ...)``."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
