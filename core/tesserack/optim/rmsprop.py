"""RMSprop."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.optim._counts import number
from tesserack.optim._each import DECAYED, EachOptimizer, State, check_usual, sign_and_decay, zeros
from tesserack.optim._rules import Rule
from tesserack.optim.optimizer import Group, Optimizer, require

__all__ = ["RMSprop"]


def _rule_of(centered: bool, momentum: bool) -> Rule:
    variance = "square_avg - grad_avg * grad_avg" if centered else "square_avg"
    return Rule(
        f"square_avg {'grad_avg' * centered} {'momentum_buffer' * momentum}",
        f"sign decay alpha weight rate eps {'momentum' * momentum}",
        f"""{DECAYED}
        square_avg = alpha * square_avg + weight * k * k
        {"grad_avg = grad_avg + weight * (k - grad_avg)" * centered}
        scale = sqrt({variance}) + eps
        {"momentum_buffer = momentum * momentum_buffer + k / scale" * momentum}
        param = param - {"rate * momentum_buffer" if momentum else "rate * k / scale"}""",
    )


_RULES = {(c, m): _rule_of(c, m) for c in (False, True) for m in (False, True)}


class RMSprop(EachOptimizer, Optimizer):
    """RMSprop (Hinton's lecture 6.5, 2012); ``centered`` as in Graves (arXiv:1308.0850).

    ``v = alpha * v + (1 - alpha) * g * g`` and ``param -= lr * g / (sqrt(v) + eps)``; centered takes the square of the
    gradient's running mean off v; with momentum ``b = momentum * b + g / (sqrt(v) + eps)`` and ``param -= lr * b``.
    ``foreach`` is accepted and changes nothing. Raises ``ValueError`` for negative options.

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(1))
    >>> opt = optim.RMSprop([w], lr=0.01)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> round(w.item(), 4)
    0.9
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: Group) -> None:
        check_usual(group)
        for name in ("momentum", "alpha"):
            require(group[name] >= 0, f"{name} value", group[name], f"{name} >= 0")

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        state["square_avg"] = zeros(param)
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros(param)
        if group["centered"]:
            state["grad_avg"] = zeros(param)

    def _rule(self, state: State, group: Group) -> tuple[Rule, tuple[float, ...]]:
        alpha, momentum = number(group["alpha"]), number(group["momentum"])
        numbers: tuple[float, ...] = (
            *sign_and_decay(group),
            alpha,
            1 - alpha,
            number(group["lr"]),
            number(group["eps"]),
        )
        if momentum > 0:
            numbers = (*numbers, momentum)
        return _RULES[bool(group["centered"]), momentum > 0], numbers
