"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.optim._counts import counter, number
from tesserack.optim._each import DECAYED, EachOptimizer, State, check_usual, sign_and_decay, zeros
from tesserack.optim._rules import Rule
from tesserack.optim.optimizer import Group, Optimizer

__all__ = ["ASGD"]


_RULE = Rule(
    "ax",
    "sign decay shrink eta mu",
    f"""{DECAYED}
    param = param * shrink - eta * k
    ax = select(mu < 1, ax + mu * (param - ax), param)""",
)


class ASGD(EachOptimizer, Optimizer):
    """Gradient descent that keeps the average of the parameters (Polyak and Juditsky 1992), in ``state[p]["ax"]``.

    ``param = (1 - lambd * eta) * param - eta * g``, with ``eta = lr / (1 + lambd * lr * step) ** alpha``; averaging
    starts after ``t0`` steps. ``foreach`` is accepted and changes nothing.
    Raises ``ValueError`` for a negative lr or weight_decay.

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(1))
    >>> opt = optim.ASGD([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> round(w.item(), 3)
    0.5
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
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
        state["eta"], state["mu"], state["ax"] = counter(float(group["lr"])), counter(1.0), zeros(param)

    def _rule(self, state: State, group: Group) -> tuple[Rule, tuple[float, ...]]:
        eta, mu = state["eta"], state["mu"]
        self._count(state, group)
        return _RULE, (*sign_and_decay(group), 1 - group["lambd"] * eta, eta, mu)

    def _count(self, state: State, group: Group) -> None:
        """The rates of the next step."""
        rate = number(group["lr"])
        state["eta"] = rate / (1 + group["lambd"] * rate * state["step"]) ** group["alpha"]
        state["mu"] = 1 / max(1.0, state["step"] - group["t0"])
