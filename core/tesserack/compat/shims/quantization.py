"""``torch.quantization``: the former name of ``torch.ao.quantization``."""

from __future__ import annotations

from tesserack.compat.shims.ao import quantization
from tesserack.compat.shims.ao.quantization import *  # noqa: F403

__all__ = [*quantization.__all__]
