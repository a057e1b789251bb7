"""Activation functions as modules: elementwise unless they take a ``dim``; the shape stays the same."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor, empty
from tesserack.nn import functional as F
from tesserack.nn import init
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


def _inplace_repr(inplace: bool, *parts: str) -> str:
    return ", ".join([*parts, "inplace=True"] if inplace else parts)


class ReLU(Module):
    """``max(x, 0)``; ``inplace=True`` overwrites the input.

    >>> from tesserack import nn, tensor
    >>> nn.ReLU()(tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)

    def extra_repr(self) -> str:
        return _inplace_repr(self.inplace)


class Threshold(Module):
    """``x`` where it exceeds ``threshold``, else ``value``.

    >>> from tesserack import nn, tensor
    >>> nn.Threshold(0.5, 9.0)(tensor([0.0, 1.0])).tolist()
    [9.0, 1.0]
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return _inplace_repr(self.inplace, f"threshold={self.threshold}", f"value={self.value}")


class Hardtanh(Module):
    """``x`` limited to ``[min_val, max_val]``.

    >>> from tesserack import nn, tensor
    >>> nn.Hardtanh(-2, 2)(tensor([-5.0, 0.5])).tolist()
    [-2.0, 0.5]
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if max_val <= min_val:
            raise ValueError(f"{type(self).__name__}: expected min_val < max_val, got {min_val} and {max_val}")
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return _inplace_repr(self.inplace, f"min_val={self.min_val}", f"max_val={self.max_val}")


class ReLU6(Hardtanh):
    """``min(max(x, 0), 6)``.

    >>> from tesserack import nn, tensor
    >>> nn.ReLU6()(tensor([-1.0, 9.0])).tolist()
    [0.0, 6.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return _inplace_repr(self.inplace)


class _Exponential(Module):
    """What ELU and CELU keep."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def extra_repr(self) -> str:
        return _inplace_repr(self.inplace, f"alpha={self.alpha}")


class ELU(_Exponential):
    """``x`` where positive, else ``alpha * (exp(x) - 1)`` (arXiv:1511.07289).

    >>> from tesserack import nn, tensor
    >>> nn.ELU()(tensor([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class CELU(_Exponential):
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)`` (arXiv:1704.07483).

    >>> from tesserack import nn, tensor
    >>> nn.CELU()(tensor([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


class SELU(Module):
    """ELU scaled so that activations keep mean 0 and variance 1 (arXiv:1706.02515).

    >>> from tesserack import nn, tensor
    >>> nn.SELU()(tensor([0.0])).tolist()
    [0.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)

    def extra_repr(self) -> str:
        return _inplace_repr(self.inplace)


class LeakyReLU(Module):
    """``x`` where positive, else ``negative_slope * x``.

    >>> from tesserack import nn, tensor
    >>> nn.LeakyReLU(0.5)(tensor([-4.0, 2.0])).tolist()
    [-2.0, 2.0]
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return _inplace_repr(self.inplace, f"negative_slope={self.negative_slope}")


class PReLU(Module):
    """``x`` where positive, else ``weight * x`` with learned ``weight``: one, or one per channel (arXiv:1502.01852).

    >>> from tesserack import nn, tensor
    >>> nn.PReLU()(tensor([-4.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    weight: Parameter

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(empty((num_parameters,), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every slope to the initial value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class GELU(Module):
    """``x * Phi(x)`` with the normal distribution function, or its tanh form for ``approximate="tanh"``.

    From arXiv:1606.08415.

    >>> from tesserack import nn, tensor
    >>> nn.GELU()(tensor([0.0])).tolist()
    [0.0]
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """``x * sigmoid(x)``.

    >>> from tesserack import nn, tensor
    >>> nn.SiLU()(tensor([0.0])).tolist()
    [0.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)

    def extra_repr(self) -> str:
        return _inplace_repr(self.inplace)


class Mish(Module):
    """``x * tanh(softplus(x))`` (arXiv:1908.08681).

    >>> from tesserack import nn, tensor
    >>> nn.Mish()(tensor([0.0])).tolist()
    [0.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, self.inplace)

    def extra_repr(self) -> str:
        return _inplace_repr(self.inplace)


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``.

    >>> from tesserack import nn, tensor
    >>> nn.Sigmoid()(tensor([0.0])).tolist()
    [0.5]
    """

    def forward(self, input: Tensor) -> Tensor:
        return ts.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent.

    >>> from tesserack import nn, tensor
    >>> nn.Tanh()(tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return ts.tanh(input)


class Hardsigmoid(Module):
    """``relu6(x + 3) / 6``.

    >>> from tesserack import nn, tensor
    >>> nn.Hardsigmoid()(tensor([-3.0, 0.0, 3.0])).tolist()
    [0.0, 0.5, 1.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)


class Hardswish(Module):
    """``x * relu6(x + 3) / 6`` (arXiv:1905.02244).

    >>> from tesserack import nn, tensor
    >>> nn.Hardswish()(tensor([0.0, 3.0])).tolist()
    [0.0, 3.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)


class Softplus(Module):
    """``log(1 + exp(beta * x)) / beta``, and ``x`` itself where ``beta * x > threshold``.

    >>> from tesserack import nn, tensor
    >>> nn.Softplus()(tensor([100.0])).tolist()
    [100.0]
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softsign(Module):
    """``x / (1 + abs(x))``.

    >>> from tesserack import nn, tensor
    >>> nn.Softsign()(tensor([-1.0, 1.0])).tolist()
    [-0.5, 0.5]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class LogSigmoid(Module):
    """``log(sigmoid(x))``, without overflow.

    >>> from tesserack import nn, tensor
    >>> nn.LogSigmoid()(tensor([-1000.0])).tolist()
    [-1000.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class RReLU(Module):
    """``x`` where positive, elsewhere times a slope: drawn from [lower, upper] in training, else their mean.

    >>> from tesserack import nn, tensor
    >>> nn.RReLU(0.25, 0.75).eval()(tensor([2.0, -2.0])).tolist()
    [2.0, -1.0]
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class GLU(Module):
    """``a * sigmoid(b)`` where a and b are the halves of the input along ``dim`` (arXiv:1612.08083).

    >>> from tesserack import nn, zeros
    >>> tuple(nn.GLU()(zeros(2, 6)).shape)
    (2, 3)
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class _AlongDim(Module):
    """What those over one dim keep."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """``exp(x) / exp(x).sum(dim)``.

    >>> from tesserack import nn, zeros
    >>> nn.Softmax(dim=1)(zeros(1, 2)).tolist()
    [[0.5, 0.5]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """``log(softmax(x))``, computed directly.

    >>> from tesserack import nn, zeros
    >>> nn.LogSoftmax(dim=0)(zeros(1)).abs().tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongDim):
    """``softmax(-x)``.

    >>> from tesserack import nn, zeros
    >>> nn.Softmin(dim=1)(zeros(1, 2)).tolist()
    [[0.5, 0.5]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W), at each position.

    >>> from tesserack import nn, zeros
    >>> nn.Softmax2d()(zeros(2, 1, 1)).flatten().tolist()
    [0.5, 0.5]
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected 3 or 4 dimensions, got shape {tuple(input.shape)}")
        return F.softmax(input, -3)


class Hardshrink(Module):
    """``x`` where ``abs(x) > lambd``, else 0.

    >>> from tesserack import nn, tensor
    >>> nn.Hardshrink()(tensor([-0.25, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(Module):
    """``x`` moved towards 0 by ``lambd``, 0 where that would cross.

    >>> from tesserack import nn, tensor
    >>> nn.Softshrink()(tensor([0.25, 2.0])).tolist()
    [0.0, 1.5]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Tanhshrink(Module):
    """``x - tanh(x)``.

    >>> from tesserack import nn, tensor
    >>> nn.Tanhshrink()(tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)
