"""``torch.ao.nn.intrinsic.modules.fused``."""

from __future__ import annotations

from tesserack.nn.intrinsic import fused
from tesserack.nn.intrinsic.fused import *  # noqa: F403

__all__ = [*fused.__all__]
