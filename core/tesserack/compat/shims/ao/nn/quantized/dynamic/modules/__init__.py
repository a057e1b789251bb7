"""``torch.ao.nn.quantized.dynamic.modules``."""

from __future__ import annotations

from tesserack.compat.shims.ao.nn.quantized.dynamic.modules.linear import Linear

__all__ = ["Linear"]
