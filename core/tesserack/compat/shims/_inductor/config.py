"""``torch._inductor.config``: any switch can be set, and changes nothing."""

from __future__ import annotations

from tesserack.compat.shims._settings import Settings, switches

__all__ = ["patch"]

triton = Settings()
cpp = Settings()
cuda = Settings()
aot_inductor = Settings()

patch, __getattr__ = switches(__name__)
