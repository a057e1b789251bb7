"""``torch.onnx.operators``: shapes as tensors."""

from __future__ import annotations

import tesserack as ts
from tesserack import Tensor

__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]


def shape_as_tensor(x: Tensor) -> Tensor:
    """The sizes, int64 of shape (ndim)."""
    return ts.tensor([*x.shape], dtype=ts.int64)


def reshape_from_tensor_shape(x: Tensor, shape: Tensor) -> Tensor:
    """``x`` in the sizes that a tensor holds."""
    return x.reshape(shape.tolist())
