"""``torch.ao.nn.quantized``: the layers that compute in floating point."""

from __future__ import annotations

from tesserack.nn.quantized.functional_modules import FloatFunctional, FXFloatFunctional

__all__ = ["FXFloatFunctional", "FloatFunctional"]
