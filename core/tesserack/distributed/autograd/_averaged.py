"""Gradients that ``DistributedDataParallel`` averages over ranks, where they come by a distributed backward pass."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd import Function
from tesserack.autograd.graph import get_gradient_edge
from tesserack.distributed.autograd._contexts import Context

__all__ = ["average", "reducers_of"]

_lock = threading.Lock()  # parameters have one ``grad`` each


class _Arriving(Function):
    """A pass in which gradients reach their leaves, so that what waits for them there is called, and at its end."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, came: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Something to go backward from."""
        ctx.came = came
        return anchor.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        """Each leaf gets its own."""
        for leaf, gradient in ctx.came:
            get_gradient_edge(leaf).node(gradient)
        return None, None


def reducers_of(leaves: Iterable[Tensor]) -> dict[Any, set[int]]:
    """Who averages gradients of these leaves: the ids of each one's."""
    from tesserack.nn.parallel._buckets import reducers

    found: dict[Any, set[int]] = {}
    ids = {id(leaf) for leaf in leaves}
    for reducer in list(reducers):
        if mine := reducer.parameters_among(ids):
            found[reducer] = mine
    return found


def average(part: Context, parameters: list[Tensor], came: list[tuple[Tensor, Tensor]]) -> None:
    """Gradients of a wrapped module come to the context as its ranks' averages; ``grad`` stays what it was."""
    with _lock:
        before = [p.grad for p in parameters]
        try:
            for p in parameters:
                p.grad = None
            _Arriving.apply(ts.zeros((), requires_grad=True), came).backward()
            for p in parameters:
                if p.grad is not None:
                    part.add(p, p.grad.clone())
        finally:
            for p, grad in zip(parameters, before, strict=True):
                p.grad = grad
