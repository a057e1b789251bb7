"""``torch.ao.quantization``: marks in a model, and layers that are fused, in floating point. Nothing is quantized."""

from __future__ import annotations

from tesserack.compat.shims.ao.quantization.fuse_modules import fuse_modules, fuse_modules_qat
from tesserack.compat.shims.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper", "fuse_modules", "fuse_modules_qat"]
