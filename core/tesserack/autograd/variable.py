"""``Variable``, from when tensors had no gradients of their own."""

from __future__ import annotations

from typing import Any

from tesserack._native import Tensor

__all__ = ["Variable"]


class VariableMeta(type):
    """Every tensor is a Variable."""

    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, Tensor)

    def __call__(cls, data: Tensor, requires_grad: bool = False, volatile: bool | None = None) -> Tensor:
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable: expected a Tensor, got {type(data).__name__}")
        return data.detach().requires_grad_() if requires_grad else data if data.requires_grad else data.detach()


class Variable(metaclass=VariableMeta):
    """``Variable(tensor, requires_grad=False)`` is the tensor's memory as a tensor; prefer ``requires_grad_``.

    >>> import tesserack as ts
    >>> isinstance(Variable(ts.ones(1)), ts.Tensor), isinstance(ts.ones(1), Variable)
    (True, True)
    """
