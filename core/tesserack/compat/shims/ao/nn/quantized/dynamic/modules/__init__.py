"""``torch.ao.nn.quantized.dynamic.modules``."""

from __future__ import annotations

from tesserack.nn.quantized.dynamic import Linear

__all__ = ["Linear"]
