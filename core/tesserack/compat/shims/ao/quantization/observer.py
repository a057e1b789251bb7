"""``torch.ao.quantization.observer``."""

from __future__ import annotations

from tesserack.nn.quantized import observer
from tesserack.nn.quantized.observer import *  # noqa: F403
from tesserack.nn.quantized.observer import _With  # noqa: F401  # earlier pickles name it here

__all__ = [*observer.__all__]
