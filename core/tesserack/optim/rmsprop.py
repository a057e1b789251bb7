"""RMSprop."""

from __future__ import annotations

from typing import Any, cast

from tesserack import Tensor
from tesserack.optim._each import EachOptimizer, Rule, State, check_usual, decayed, kept, sign_and_decay, zeros
from tesserack.optim.optimizer import Group, Optimizer, require

__all__ = ["RMSprop"]


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

    def _rule(self, state: State, group: Group) -> Rule:
        alpha, momentum = float(group["alpha"]), float(group["momentum"])
        name, states = "rmsprop", cast("tuple[str, ...]", ("square_avg",))
        numbers: tuple[float, ...] = (*sign_and_decay(group), alpha, 1 - alpha, float(group["lr"]), float(group["eps"]))
        if group["centered"]:
            name, states = f"{name}_centered", (*states, "grad_avg")
        if momentum > 0:
            name, states, numbers = f"{name}_momentum", (*states, "momentum_buffer"), (*numbers, momentum)
        return Rule(name, states, numbers)

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        grad = decayed(grad, param, group)
        alpha, rate = group["alpha"], float(group["lr"])
        square = state["square_avg"]
        square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"]
            mean.lerp_(grad, 1 - alpha)
            scale = square.addcmul(kept(mean, group), kept(mean, group), value=-1).sqrt_().add(group["eps"])
        else:
            scale = kept(square, group).sqrt().add(group["eps"])
        if group["momentum"] > 0:
            buffer = state["momentum_buffer"]
            buffer.mul_(group["momentum"]).addcdiv_(grad, scale)
            param.add_(kept(buffer, group), alpha=-rate)
        else:
            param.addcdiv_(grad, scale, value=-rate)
