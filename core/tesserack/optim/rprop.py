"""Resilient backpropagation."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.optim._each import EachOptimizer, State, zeros
from tesserack.optim._rules import Rule
from tesserack.optim.optimizer import Group, Optimizer, require

__all__ = ["Rprop"]


_RULE = Rule(
    "prev step_size",
    "way up down low high",
    """k = way * grad
    agreement = k * prev
    factor = select(agreement > 0, up, select(agreement < 0, down, 1))
    step_size = min(max(step_size * factor, low), high)
    prev = select(agreement < 0, 0, k)
    param = param - sign(prev) * step_size""",
)


class Rprop(EachOptimizer, Optimizer):
    """Steps by the sign of the gradient (Riedmiller and Braun 1993), for full batches.

    Each element has a step size, started at ``lr``: multiplied by ``etas[1]`` while its gradient keeps its sign and by
    ``etas[0]`` when it turns, within ``step_sizes``; an element whose gradient turned rests once. ``foreach`` is
    accepted
    and changes nothing. Raises ``ValueError`` for a negative lr, and unless 0 < etas[0] < 1 < etas[1].

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(1))
    >>> opt = optim.Rprop([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> w.item()
    0.75
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: Group) -> None:
        require(group["lr"] >= 0, "learning rate", group["lr"], "lr >= 0")
        low, high = group["etas"]
        require(0 < low < 1 < high, "eta values", group["etas"], "0 < etas[0] < 1 < etas[1]")

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        rate = float(group["lr"])
        start: Any = complex(rate, rate) if param.is_complex() else rate
        state["prev"] = zeros(param)
        state["step_size"] = ts.full_like(param.detach(), start)

    def _rule(self, state: State, group: Group) -> tuple[Rule, tuple[float, ...]]:
        (down, up), (low, high) = group["etas"], group["step_sizes"]
        sign = -1.0 if group["maximize"] else 1.0
        return _RULE, (sign, float(up), float(down), float(low), float(high))
