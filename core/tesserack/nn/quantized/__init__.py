"""Numbers as integers with a scale: tensors of them, and where a model is to be quantized.

Marks, and functions as modules that observers see, compute in floating point.
"""

from tesserack.nn.quantized.functional_modules import FloatFunctional, FXFloatFunctional
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
    "DeQuantStub",
    "FXFloatFunctional",
    "FloatFunctional",
    "QuantStub",
    "QuantWrapper",
    "QuantizedTensor",
    "QuantizedType",
    "dequantize",
    "per_channel_affine",
    "per_channel_affine_float_qparams",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "qint8",
    "qint32",
    "qscheme",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quint2x4",
    "quint4x2",
    "quint8",
]
