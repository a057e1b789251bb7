"""Layers one after the other under one name, as fusing leaves them in floating point."""

from __future__ import annotations

from typing import ClassVar

from tesserack import nn

__all__ = [
    "BNReLU2d", "BNReLU3d", "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvBnReLU3d",
    "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearBn1d", "LinearReLU",
]  # fmt: skip


class _FusedModule(nn.Sequential):
    _parts: ClassVar[tuple[type[nn.Module], ...]] = ()

    def __init__(self, *layers: nn.Module) -> None:
        if tuple(map(type, layers)) != self._parts:
            wanted = ", ".join(part.__name__ for part in self._parts)
            raise AssertionError(
                f"{type(self).__name__}: expected layers of the types {wanted}, "
                f"got {', '.join(type(layer).__name__ for layer in layers)}"
            )
        super().__init__(*layers)


class ConvReLU1d(_FusedModule):
    """A convolution and relu."""

    _parts = (nn.Conv1d, nn.ReLU)


class ConvReLU2d(_FusedModule):
    """A convolution and relu."""

    _parts = (nn.Conv2d, nn.ReLU)


class ConvReLU3d(_FusedModule):
    """A convolution and relu."""

    _parts = (nn.Conv3d, nn.ReLU)


class LinearReLU(_FusedModule):
    """A linear layer and relu."""

    _parts = (nn.Linear, nn.ReLU)


class ConvBn1d(_FusedModule):
    """A convolution and batch normalisation."""

    _parts = (nn.Conv1d, nn.BatchNorm1d)


class ConvBn2d(_FusedModule):
    """A convolution and batch normalisation."""

    _parts = (nn.Conv2d, nn.BatchNorm2d)


class ConvBn3d(_FusedModule):
    """A convolution and batch normalisation."""

    _parts = (nn.Conv3d, nn.BatchNorm3d)


class ConvBnReLU1d(_FusedModule):
    """A convolution, batch normalisation and relu."""

    _parts = (nn.Conv1d, nn.BatchNorm1d, nn.ReLU)


class ConvBnReLU2d(_FusedModule):
    """A convolution, batch normalisation and relu."""

    _parts = (nn.Conv2d, nn.BatchNorm2d, nn.ReLU)


class ConvBnReLU3d(_FusedModule):
    """A convolution, batch normalisation and relu."""

    _parts = (nn.Conv3d, nn.BatchNorm3d, nn.ReLU)


class BNReLU2d(_FusedModule):
    """Batch normalisation and relu."""

    _parts = (nn.BatchNorm2d, nn.ReLU)


class BNReLU3d(_FusedModule):
    """Batch normalisation and relu."""

    _parts = (nn.BatchNorm3d, nn.ReLU)


class LinearBn1d(_FusedModule):
    """A linear layer and batch normalisation."""

    _parts = (nn.Linear, nn.BatchNorm1d)
