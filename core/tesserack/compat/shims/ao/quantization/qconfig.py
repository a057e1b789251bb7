"""``torch.ao.quantization.qconfig``."""

from __future__ import annotations

from tesserack.nn.quantized import qconfig
from tesserack.nn.quantized.qconfig import *  # noqa: F403

__all__ = [*qconfig.__all__]
