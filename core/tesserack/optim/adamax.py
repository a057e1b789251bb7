"""Adamax."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.optim._counts import number
from tesserack.optim._each import DECAYED, EachOptimizer, State, check_usual, sign_and_decay, zeros
from tesserack.optim._rules import Rule
from tesserack.optim.optimizer import Group, Optimizer

__all__ = ["Adamax"]


_RULE = Rule(
    "exp_avg exp_inf",
    "sign decay weight beta2 rate eps",
    f"""{DECAYED}
    exp_avg = exp_avg + weight * (k - exp_avg)
    exp_inf = max(beta2 * exp_inf, abs(k) + eps)
    param = param - rate * exp_avg / exp_inf""",
)


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

    def _rule(self, state: State, group: Group) -> tuple[Rule, tuple[float, ...]]:
        beta1, beta2 = map(number, group["betas"])
        rate = number(group["lr"]) / (1 - beta1 ** state["step"])
        numbers = (*sign_and_decay(group), 1 - beta1, beta2, rate, number(group["eps"]))
        return _RULE, numbers
