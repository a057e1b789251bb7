"""Adadelta."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.optim._counts import number
from tesserack.optim._each import DECAYED, EachOptimizer, State, check_usual, sign_and_decay, zeros
from tesserack.optim._rules import Rule
from tesserack.optim.optimizer import Group, Optimizer, require

__all__ = ["Adadelta"]


_RULE = Rule(
    "square_avg acc_delta",
    "sign decay rho weight eps rate",
    f"""{DECAYED}
    square_avg = rho * square_avg + weight * k * k
    delta = sqrt(acc_delta + eps) / sqrt(square_avg + eps) * k
    param = param - rate * delta
    acc_delta = rho * acc_delta + weight * delta * delta""",
)


class Adadelta(EachOptimizer, Optimizer):
    """Adadelta (Zeiler, arXiv:1212.5701).

    ``v = rho * v + (1 - rho) * g * g``, ``d = g * sqrt(u + eps) / sqrt(v + eps)``, ``u = rho * u + (1 - rho) * d * d``
    and ``param -= lr * d``. ``foreach`` is accepted and changes nothing.
    Raises ``ValueError`` for negative lr, eps or weight_decay, and for rho outside [0, 1].

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(1))
    >>> opt = optim.Adadelta([w])
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> round(w.item(), 4)
    0.9968
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: Group) -> None:
        check_usual(group)
        require(0 <= group["rho"] <= 1, "rho value", group["rho"], "0 <= rho <= 1")

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        state["square_avg"], state["acc_delta"] = zeros(param), zeros(param)

    def _rule(self, state: State, group: Group) -> tuple[Rule, tuple[float, ...]]:
        rho, eps, rate = number(group["rho"]), number(group["eps"]), number(group["lr"])
        return _RULE, (*sign_and_decay(group), rho, 1 - rho, eps, rate)
