"""``torch.ao.quantization.stubs``."""

from __future__ import annotations

from tesserack.nn.quantized import stubs
from tesserack.nn.quantized.stubs import *  # noqa: F403

__all__ = [*stubs.__all__]
