"""``torch.ao.nn.quantized.modules.functional_modules``."""

from __future__ import annotations

from tesserack.nn.quantized import functional_modules
from tesserack.nn.quantized.functional_modules import *  # noqa: F403

__all__ = [*functional_modules.__all__]
