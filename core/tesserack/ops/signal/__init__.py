"""Signals, with the names of ``torch.signal``: windows."""

from __future__ import annotations

from tesserack.ops.signal import windows as windows

__all__ = ["windows"]
