"""``torch.cuda.amp``: the older spellings of ``torch.amp`` for "cuda"."""

from __future__ import annotations

import functools
from typing import Any

from tesserack import _native
from tesserack.amp import GradScaler as _GradScaler
from tesserack.amp import autocast as _autocast
from tesserack.amp import custom_bwd as _custom_bwd
from tesserack.amp import custom_fwd as _custom_fwd

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(_autocast):
    """``torch.amp.autocast("cuda", ...)``."""

    def __init__(
        self, enabled: bool = True, dtype: _native.dtype = _native.float16, cache_enabled: bool = True
    ) -> None:
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_GradScaler):
    """``torch.amp.GradScaler("cuda", ...)``."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


custom_fwd: Any = functools.partial(_custom_fwd, device_type="cuda")
custom_bwd: Any = functools.partial(_custom_bwd, device_type="cuda")
