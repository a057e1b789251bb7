"""``torch._functorch.config``: any switch can be set, and changes nothing."""

from __future__ import annotations

from tesserack.compat.shims._settings import switches

__all__ = ["patch"]

patch, __getattr__ = switches(__name__)
