"""``torch.ao.nn.quantized.dynamic.modules.linear``."""

from __future__ import annotations

from tesserack.nn.quantized.dynamic import Linear, LinearPackedParams

__all__ = ["Linear", "LinearPackedParams"]
