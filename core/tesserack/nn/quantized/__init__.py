"""Where a model is to be quantized: marks, and functions as modules, which observers see.

Until then they compute in floating point.
"""

from tesserack.nn.quantized.functional_modules import FloatFunctional, FXFloatFunctional
from tesserack.nn.quantized.stubs import DeQuantStub, QuantStub, QuantWrapper

__all__ = ["DeQuantStub", "FXFloatFunctional", "FloatFunctional", "QuantStub", "QuantWrapper"]
