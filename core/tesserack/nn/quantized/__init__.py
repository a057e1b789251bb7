"""Numbers as integers with a scale: tensors and layers of them, observers, and where a model is to be quantized.

Marks, and functions as modules that observers see, compute in floating point.
"""

from tesserack.nn.quantized import observer
from tesserack.nn.quantized.functional_modules import FloatFunctional, FXFloatFunctional
from tesserack.nn.quantized.observer import *  # noqa: F403
from tesserack.nn.quantized.qconfig import (
    QConfig,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    per_channel_dynamic_qconfig,
)
from tesserack.nn.quantized.quantize import quantize_dynamic
from tesserack.nn.quantized.stubs import DeQuantStub, QuantStub, QuantWrapper
from tesserack.nn.quantized.tensor import (
    QuantizedTensor,
    QuantizedType,
    dequantize,
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    qint32,
    qscheme,
    quantize_per_channel,
    quantize_per_tensor,
    quint2x4,
    quint4x2,
    quint8,
)

__all__ = [
    *observer.__all__,
    "DeQuantStub",
    "FXFloatFunctional",
    "FloatFunctional",
    "QConfig",
    "QuantStub",
    "QuantWrapper",
    "QuantizedTensor",
    "QuantizedType",
    "default_dynamic_qconfig",
    "dequantize",
    "float16_dynamic_qconfig",
    "per_channel_affine",
    "per_channel_affine_float_qparams",
    "per_channel_dynamic_qconfig",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "qint8",
    "qint32",
    "qscheme",
    "quantize_dynamic",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quint2x4",
    "quint4x2",
    "quint8",
]
