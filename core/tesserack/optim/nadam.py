"""NAdam and RAdam: Adam with Nesterov's momentum, and with a rectified start."""

from __future__ import annotations

import math
from typing import Any

from tesserack import Tensor
from tesserack.optim._counts import counter
from tesserack.optim._each import (
    EachOptimizer,
    Rule,
    State,
    check_usual,
    decayed,
    kept,
    moments,
    sign_and_decay,
    zeros,
)
from tesserack.optim.optimizer import Group, Optimizer, require

__all__ = ["NAdam", "RAdam"]


class _Decaying(EachOptimizer):
    """Weight decay in the gradient or, decoupled, in the parameter; two moments."""

    def _check_group(self, group: Group) -> None:
        check_usual(group)

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        state["exp_avg"], state["exp_avg_sq"] = zeros(param), zeros(param)

    def _decayed(self, grad: Tensor, param: Tensor, group: Group) -> Tensor:
        if not group["decoupled_weight_decay"]:
            return decayed(grad, param, group)
        if group["weight_decay"]:
            param.mul_(1 - float(group["lr"]) * group["weight_decay"])
        return grad

    def _moments(self, group: Group) -> tuple[float, ...]:
        """The first numbers of a rule: sign, decay in the gradient, factor of the parameter, and of the moments."""
        sign, decay = sign_and_decay(group)
        beta1, beta2 = map(float, group["betas"])
        shrink = 1.0
        if group["decoupled_weight_decay"]:
            decay, shrink = 0.0, 1 - float(group["lr"]) * decay
        return sign, decay, shrink, 1 - beta1, beta2, 1 - beta2


class NAdam(_Decaying, Optimizer):
    """Adam with Nesterov's momentum (Dozat, ICLR workshop 2016).

    ``mu = beta1 * (1 - 0.96 ** (step * momentum_decay) / 2)`` weighs gradient and running mean against each other.
    ``decoupled_weight_decay`` as in :class:`AdamW`. ``foreach`` is accepted and changes nothing.
    Raises ``ValueError`` for negative options and for betas outside [0, 1).

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(1))
    >>> opt = optim.NAdam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> round(w.item(), 2)
    0.89
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        require(group["momentum_decay"] >= 0, "momentum_decay value", group["momentum_decay"], "momentum_decay >= 0")

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        state["mu_product"] = counter(1.0)
        super()._start(state, param, group)

    def _rule(self, state: State, group: Group) -> Rule:
        (_, beta2), step, rate = group["betas"], state["step"], float(group["lr"])
        now, following = self._weights(state, group)
        of_grad = rate * (1 - now) / (1 - state["mu_product"])
        of_mean = rate * following / (1 - state["mu_product"] * following)
        numbers = (*self._moments(group), 1 - float(beta2) ** step, of_grad, of_mean, float(group["eps"]))
        return Rule("nadam", ("exp_avg", "exp_avg_sq"), numbers)

    def _weights(self, state: State, group: Group) -> tuple[float, float]:
        """What the mean weighs in this step and the next; their product is counted on."""
        step, decay = state["step"], group["momentum_decay"]
        now, following = (group["betas"][0] * (1 - 0.5 * 0.96 ** (t * decay)) for t in (step, step + 1))
        state["mu_product"] *= now
        return now, following

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        grad = self._decayed(grad, param, group)
        (_, beta2), step, rate = group["betas"], state["step"], float(group["lr"])
        now, following = self._weights(state, group)
        mean, square = moments(grad, state, group["betas"])
        scale = kept(square, group).div(1 - beta2**step).sqrt_().add(group["eps"])
        param.addcdiv_(grad, scale, value=-rate * (1 - now) / (1 - state["mu_product"]))
        param.addcdiv_(kept(mean, group), scale, value=-rate * following / (1 - state["mu_product"] * following))


class RAdam(_Decaying, Optimizer):
    """Adam whose first steps do without the unreliable second moment (Liu et al., arXiv:1908.03265).

    ``decoupled_weight_decay`` as in :class:`AdamW`. ``foreach`` is accepted and changes nothing.
    Raises ``ValueError`` for negative lr, eps or weight_decay, and for betas outside [0, 1).

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(1))
    >>> opt = optim.RAdam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> round(w.item(), 2)
    0.8
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _rule(self, state: State, group: Group) -> Rule:
        factor, step = _rectified(group["betas"], state["step"]), state["step"]
        rate = float(group["lr"]) / (1 - float(group["betas"][0]) ** step)
        states, numbers = ("exp_avg", "exp_avg_sq"), self._moments(group)
        if factor is None:
            return Rule("radam_early", states, (*numbers, rate))
        return Rule("radam", states, (*numbers, rate * factor, float(group["eps"])))

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        grad = self._decayed(grad, param, group)
        mean, square = moments(grad, state, group["betas"])
        update = kept(mean, group).div(1 - group["betas"][0] ** state["step"])
        factor = _rectified(group["betas"], state["step"])
        if factor is not None:
            update = update.mul_(factor).div_(kept(square, group).sqrt().add(group["eps"]))
        param.add_(update, alpha=-float(group["lr"]))


def _rectified(betas: tuple[float, float], step: float) -> float | None:
    """What the update is multiplied by before it is divided by the second moment's root; None while that is unsure."""
    beta2 = float(betas[1])
    correction = 1 - beta2**step
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / correction  # of the average, as a simple moving one
    if length <= 5:
        return None
    top = (length - 4) * (length - 2) * longest
    return math.sqrt(top / ((longest - 4) * (longest - 2) * length)) * math.sqrt(correction)
