"""Helpers of ``torch.autograd`` that programs call by their private names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["calculate_shape", "standard_basis"]


def standard_basis(tensors: Sequence[Tensor], tensor_numels: Sequence[int]) -> tuple[Tensor, ...]:
    """The columns of a unit matrix as wide as all tensors together, those of each in its dtype and on its device."""
    total, start, found = sum(tensor_numels), 0, []
    for tensor, count in zip(tensors, tensor_numels, strict=True):
        columns = tensor.new_zeros(total, count)
        columns.diagonal(-start).fill_(1)
        found.append(columns)
        start += count
    return tuple(found)


def calculate_shape(output: Any, grad: Tensor, is_grads_batched: bool) -> tuple[Any, Any]:
    """The shapes that must agree, of nested tensors as tensors of a row for each part; gradients without the batch."""

    def shape_of(tensor: Tensor) -> Any:
        return ts.tensor([[*part.shape] for part in tensor.unbind()])

    shape = output.shape if not isinstance(output, Tensor) or not output.is_nested else shape_of(output)
    if grad.is_nested:
        return shape, shape_of(grad)
    return shape, grad.shape[1:] if is_grads_batched else grad.shape
