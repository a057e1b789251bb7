"""Fully connected layers."""

from __future__ import annotations

import math
from typing import Any

from tesserack import Tensor, empty
from tesserack.nn import functional as F
from tesserack.nn import init
from tesserack.nn.modules._common import uniform_bias_
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Returns its input; takes and ignores any arguments, so that it can stand in for another layer.

    >>> from tesserack import nn, ones
    >>> nn.Identity(54, unused=True)(ones(2)).tolist()
    [1.0, 1.0]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """``input @ weight.T + bias``: (..., in_features) -> (..., out_features).

    ``weight`` is (out_features, in_features); both parameters start uniform in +-1/sqrt(in_features).

    >>> from tesserack import nn, ones
    >>> layer = nn.Linear(20, 30)
    >>> layer
    Linear(in_features=20, out_features=30, bias=True)
    >>> tuple(layer(ones(8, 20)).shape)
    (8, 30)
    """

    in_features: int
    out_features: int
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty((out_features,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            uniform_bias_(self.bias, self.in_features)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """A :class:`Linear` under the name that attention's output projection has."""


class Bilinear(Module):
    """``y[o] = input1 @ weight[o] @ input2 + bias[o]``: (..., in1), (..., in2) -> (..., out).

    ``weight`` is (out, in1, in2); both parameters start uniform in +-1/sqrt(in1). ``ValueError`` unless in1 > 0.

    >>> from tesserack import nn, ones
    >>> tuple(nn.Bilinear(4, 3, 2)(ones(5, 4), ones(5, 3)).shape)
    (5, 2)
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in1_features, in2_features), device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty((out_features,), device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
