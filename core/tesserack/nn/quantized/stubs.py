"""Marks where a model is to begin and end being quantized: until then they give back what they get."""

from __future__ import annotations

from typing import Any

from tesserack import nn

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]


class _Stub(nn.Module):
    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """The argument."""
        return x


class QuantStub(_Stub):
    """Where tensors are to be quantized."""


class DeQuantStub(_Stub):
    """Where they are to be in floating point again."""


class QuantWrapper(nn.Module):
    """A module between both marks.

    >>> import tesserack as ts
    >>> QuantWrapper(ts.nn.ReLU())(ts.tensor([-1.0, 1.0])).tolist()
    [0.0, 1.0]
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.quant, self.dequant = QuantStub(qconfig), DeQuantStub(qconfig)
        self.module = module
        self.train(module.training)

    def forward(self, X: Any) -> Any:
        """The module's result."""
        return self.dequant(self.module(self.quant(X)))
