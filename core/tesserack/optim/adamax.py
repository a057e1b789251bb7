"""Adamax."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.optim._each import EachOptimizer, Rule, State, check_usual, decayed, kept, sign_and_decay, zeros
from tesserack.optim.optimizer import Group, Optimizer

__all__ = ["Adamax"]


class Adamax(EachOptimizer, Optimizer):
    """Adam by the infinity norm (Kingma and Ba, arXiv:1412.6980).

    ``m = beta1 * m + (1 - beta1) * g``, ``u = max(beta2 * u, abs(g) + eps)`` and
    ``param -= lr / (1 - beta1 ** step) * m / u``. ``foreach`` is accepted and changes nothing.
    Raises ``ValueError`` for negative lr, eps or weight_decay, and for betas outside [0, 1).

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(1))
    >>> opt = optim.Adamax([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> round(w.item(), 4)
    0.5
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: Group) -> None:
        check_usual(group)

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        state["exp_avg"], state["exp_inf"] = zeros(param), zeros(param)

    def _rule(self, state: State, group: Group) -> Rule:
        beta1, beta2 = map(float, group["betas"])
        rate = float(group["lr"]) / (1 - beta1 ** state["step"])
        numbers = (*sign_and_decay(group), 1 - beta1, beta2, rate, float(group["eps"]))
        return Rule("adamax", ("exp_avg", "exp_inf"), numbers)

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        grad = decayed(grad, param, group)
        beta1, beta2 = group["betas"]
        mean, top = state["exp_avg"], state["exp_inf"]
        mean.lerp_(grad, 1 - beta1)
        top.copy_(ts.maximum(top.mul_(beta2), grad.abs().add_(group["eps"])))
        param.addcdiv_(kept(mean, group), kept(top, group), value=-float(group["lr"]) / (1 - beta1 ** state["step"]))
