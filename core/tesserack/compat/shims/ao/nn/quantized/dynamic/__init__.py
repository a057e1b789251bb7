"""``torch.ao.nn.quantized.dynamic``: layers that quantize their input in each call."""

from __future__ import annotations

from tesserack.nn.quantized.dynamic import Linear

__all__ = ["Linear"]
