"""Padding the last dimensions: with a constant, by mirroring, by repeating the edge, or around the other end."""

from __future__ import annotations

from collections.abc import Sequence

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn._sizes import to_tuple
from tesserack.nn.modules.module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    """One width for every side, or a tuple in the order of :func:`F.pad`: last dimension first, left before right."""

    dims: int
    mode: str

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = to_tuple(padding, 2 * self.dims)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    """Also keeps the value; it takes inputs of any rank."""

    mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ReflectionPadNd(_Pad):
    mode = "reflect"


class _ReplicationPadNd(_Pad):
    mode = "replicate"


class _CircularPadNd(_Pad):
    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self.dims + 1, self.dims + 2):
            raise ValueError(f"expected {self.dims + 1}D or {self.dims + 2}D input (got {input.ndim}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """Pads the last dimension with values from the other end.

    >>> from tesserack import nn, tensor
    >>> nn.CircularPad1d(1)(tensor([[1.0, 2.0, 3.0]])).tolist()
    [[3.0, 1.0, 2.0, 3.0, 1.0]]
    """

    dims = 1


class CircularPad2d(_CircularPadNd):
    """Pads the last 2 dimensions with values from the other end.

    >>> from tesserack import nn, ones
    >>> tuple(nn.CircularPad2d(1)(ones(1, 2, 4, 4)).shape)
    (1, 2, 6, 6)
    """

    dims = 2


class CircularPad3d(_CircularPadNd):
    """Pads the last 3 dimensions with values from the other end.

    >>> from tesserack import nn, ones
    >>> tuple(nn.CircularPad3d(1)(ones(1, 2, 4, 4, 4)).shape)
    (1, 2, 6, 6, 6)
    """

    dims = 3


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with ``value``.

    >>> from tesserack import nn, tensor
    >>> nn.ConstantPad1d(1, 9.0)(tensor([[1.0, 2.0, 3.0]])).tolist()
    [[9.0, 1.0, 2.0, 3.0, 9.0]]
    """

    dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads the last 2 dimensions with ``value``.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ConstantPad2d(1, 9.0)(ones(1, 2, 4, 4)).shape)
    (1, 2, 6, 6)
    """

    dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last 3 dimensions with ``value``.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ConstantPad3d(1, 9.0)(ones(1, 2, 4, 4, 4)).shape)
    (1, 2, 6, 6, 6)
    """

    dims = 3


class ReflectionPad1d(_ReflectionPadNd):
    """Pads the last dimension with the mirror image, without the edge itself.

    >>> from tesserack import nn, tensor
    >>> nn.ReflectionPad1d(1)(tensor([[1.0, 2.0, 3.0]])).tolist()
    [[2.0, 1.0, 2.0, 3.0, 2.0]]
    """

    dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Pads the last 2 dimensions with the mirror image, without the edge itself.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ReflectionPad2d(1)(ones(1, 2, 4, 4)).shape)
    (1, 2, 6, 6)
    """

    dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Pads the last 3 dimensions with the mirror image, without the edge itself.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ReflectionPad3d(1)(ones(1, 2, 4, 4, 4)).shape)
    (1, 2, 6, 6, 6)
    """

    dims = 3


class ReplicationPad1d(_ReplicationPadNd):
    """Pads the last dimension with the value at the edge.

    >>> from tesserack import nn, tensor
    >>> nn.ReplicationPad1d(1)(tensor([[1.0, 2.0, 3.0]])).tolist()
    [[1.0, 1.0, 2.0, 3.0, 3.0]]
    """

    dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Pads the last 2 dimensions with the value at the edge.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ReplicationPad2d(1)(ones(1, 2, 4, 4)).shape)
    (1, 2, 6, 6)
    """

    dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Pads the last 3 dimensions with the value at the edge.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ReplicationPad3d(1)(ones(1, 2, 4, 4, 4)).shape)
    (1, 2, 6, 6, 6)
    """

    dims = 3


class _Zeros:
    """Put before a constant padding whose value is 0."""

    padding: tuple[int, ...]

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)  # type: ignore[call-arg]

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_Zeros, ConstantPad1d):
    """Pads the last dimension with zeros.

    >>> from tesserack import nn, tensor
    >>> nn.ZeroPad1d(1)(tensor([[1.0, 2.0, 3.0]])).tolist()
    [[0.0, 1.0, 2.0, 3.0, 0.0]]
    """


class ZeroPad2d(_Zeros, ConstantPad2d):
    """Pads the last 2 dimensions with zeros.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ZeroPad2d(1)(ones(1, 2, 4, 4)).shape)
    (1, 2, 6, 6)
    """


class ZeroPad3d(_Zeros, ConstantPad3d):
    """Pads the last 3 dimensions with zeros.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ZeroPad3d(1)(ones(1, 2, 4, 4, 4)).shape)
    (1, 2, 6, 6, 6)
    """
