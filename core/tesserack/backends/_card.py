"""The device that PyTorch means where it means a card and names none."""

from __future__ import annotations

__all__ = ["CARD"]

CARD = "cuda"
