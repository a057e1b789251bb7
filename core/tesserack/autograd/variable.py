"""``Variable``, from when tensors had no gradients of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack import _native
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


class _Engine:
    """What programs ask of the engine by way of ``Variable``."""

    @staticmethod
    def queue_callback(callback: Callable[[], Any]) -> None:
        """Call it at the end of the backward that is running. ``RuntimeError`` outside of one."""
        _native._queue_callback(callback)


class Variable(metaclass=VariableMeta):
    """``Variable(tensor, requires_grad=False)`` is the tensor's memory as a tensor; prefer ``requires_grad_``.

    >>> import tesserack as ts
    >>> isinstance(Variable(ts.ones(1)), ts.Tensor), isinstance(ts.ones(1), Variable)
    (True, True)
    """

    _execution_engine = _Engine()
