"""NAdam and RAdam: Adam with Nesterov's momentum, and with a rectified start."""

from __future__ import annotations

import math
from typing import Any

from tesserack import Tensor
from tesserack.optim._each import EachOptimizer, State, check_usual, decayed, kept, moments, zeros
from tesserack.optim.optimizer import Group, require

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


class NAdam(_Decaying):
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
        state["mu_product"] = 1.0
        super()._start(state, param, group)

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        grad = self._decayed(grad, param, group)
        (beta1, beta2), step, rate = group["betas"], state["step"], float(group["lr"])
        now, following = (beta1 * (1 - 0.5 * 0.96 ** (t * group["momentum_decay"])) for t in (step, step + 1))
        state["mu_product"] *= now
        mean, square = moments(grad, state, group["betas"])
        scale = kept(square, group).div(1 - beta2**step).sqrt_().add(group["eps"])
        param.addcdiv_(grad, scale, value=-rate * (1 - now) / (1 - state["mu_product"]))
        param.addcdiv_(kept(mean, group), scale, value=-rate * following / (1 - state["mu_product"] * following))


class RAdam(_Decaying):
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

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        grad = self._decayed(grad, param, group)
        (beta1, beta2), step = group["betas"], state["step"]
        mean, square = moments(grad, state, group["betas"])
        update = kept(mean, group).div(1 - beta1**step)
        correction = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / correction  # of the average, as a simple moving one
        if length > 5:
            top = (length - 4) * (length - 2) * longest
            rectified = math.sqrt(top / ((longest - 4) * (longest - 2) * length))
            update = update.mul_(rectified * math.sqrt(correction)).div_(kept(square, group).sqrt().add(group["eps"]))
        param.add_(update, alpha=-float(group["lr"]))
