"""``torch.ao.quantization``: marks in a model, and layers that are fused, in floating point. Nothing is quantized."""

from __future__ import annotations

from tesserack.nn.quantized.stubs import DeQuantStub, QuantStub, QuantWrapper
from tesserack.nn.utils.fuse_modules import fuse_modules, fuse_modules_qat

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper", "fuse_modules", "fuse_modules_qat"]
