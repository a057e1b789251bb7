"""Resilient backpropagation."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.optim._each import EachOptimizer, Rule, State, zeros
from tesserack.optim.optimizer import Group, Optimizer, require

__all__ = ["Rprop"]


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

    def _rule(self, state: State, group: Group) -> Rule:
        (down, up), (low, high) = group["etas"], group["step_sizes"]
        sign = -1.0 if group["maximize"] else 1.0
        return Rule("rprop", ("prev", "step_size"), (sign, float(up), float(down), float(low), float(high)))

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        (down, up), (low, high) = group["etas"], group["step_sizes"]
        agreement = grad * state["prev"]
        turned = agreement < 0
        factor = ts.ones_like(agreement).masked_fill_(agreement > 0, up).masked_fill_(turned, down)
        state["step_size"].mul_(factor).clamp_(low, high)
        grad = grad.masked_fill(turned, 0)
        param.addcmul_(grad.sign(), state["step_size"], value=-1)
        state["prev"].copy_(grad)
