"""``torch._C._functions``: nodes of graphs that are no operator's, by PyTorch's names."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack.autograd.function import Function

__all__: list[str] = []

_leaf = ts.ones((), requires_grad=True)
with ts.enable_grad():
    AccumulateGrad: Any = type(_leaf.view_as(_leaf).grad_fn.next_functions[0][0])  # type: ignore[union-attr]


class _Undefined(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> None:
        return None


class UndefinedGrad:
    """The identity, which passes no gradient on."""

    def __call__(self, x: Any) -> Any:
        return _Undefined.apply(x)
