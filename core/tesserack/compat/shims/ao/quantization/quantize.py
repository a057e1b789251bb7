"""``torch.ao.quantization.quantize``."""

from __future__ import annotations

from tesserack.nn.quantized.quantize import quantize_dynamic

__all__ = ["quantize_dynamic"]
