"""``torch._inductor``: nothing is compiled; its switches can be set and change nothing."""

from __future__ import annotations

from tesserack.compat.shims._inductor import config

__all__ = ["config"]
