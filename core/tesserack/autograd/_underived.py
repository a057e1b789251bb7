"""Results of functions in Python that have no derivative, said instead of left out."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd.function import Function

__all__ = ["underived"]


class _Underived(Function):
    """Results as they are, which remember what they came from and have no derivative by it."""

    @staticmethod
    def forward(ctx: Any, op: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.op = op
        return tuple(result.detach() for result in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise NotImplementedError(f"{ctx.op}: derivative for {ctx.op} is not implemented; detach() its input")


def underived(op: str, results: tuple[Tensor, ...], *sources: Tensor | None) -> tuple[Tensor, ...]:
    """The results of a function without a derivative: a backward pass that comes to it says so, and is not silent."""
    given = [x for x in sources if x is not None and x.requires_grad]
    if not given or not ts.is_grad_enabled():
        return results
    return _Underived.apply(op, len(results), *results, *given)  # type: ignore[no-any-return]
