"""``torch.ao.nn.intrinsic``: layers that are computed together once they are quantized."""

from __future__ import annotations

from tesserack.nn.intrinsic import fused
from tesserack.nn.intrinsic.fused import *  # noqa: F403

__all__ = list(fused.__all__)
