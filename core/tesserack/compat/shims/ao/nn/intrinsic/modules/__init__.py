"""``torch.ao.nn.intrinsic.modules``: layers that are computed together once they are quantized."""

from __future__ import annotations

from tesserack.compat.shims.ao.nn.intrinsic.modules import fused
from tesserack.compat.shims.ao.nn.intrinsic.modules.fused import *  # noqa: F403

__all__ = list(fused.__all__)
