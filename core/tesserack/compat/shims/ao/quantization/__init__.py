"""``torch.ao.quantization``: marks in a model, layers that are fused, observers, and linear layers of 8 bits."""

from __future__ import annotations

from tesserack.nn.quantized import observer
from tesserack.nn.quantized.observer import *  # noqa: F403
from tesserack.nn.quantized.qconfig import (
    QConfig,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    per_channel_dynamic_qconfig,
)
from tesserack.nn.quantized.quantize import quantize_dynamic
from tesserack.nn.quantized.stubs import DeQuantStub, QuantStub, QuantWrapper
from tesserack.nn.utils.fuse_modules import fuse_modules, fuse_modules_qat

__all__ = [
    *observer.__all__,
    "DeQuantStub",
    "QConfig",
    "QuantStub",
    "QuantWrapper",
    "default_dynamic_qconfig",
    "float16_dynamic_qconfig",
    "fuse_modules",
    "fuse_modules_qat",
    "per_channel_dynamic_qconfig",
    "quantize_dynamic",
]
