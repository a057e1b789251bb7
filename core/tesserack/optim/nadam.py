"""NAdam and RAdam: Adam with Nesterov's momentum, and with a rectified start."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.optim._counts import counter, number
from tesserack.optim._each import DECAYED, EachOptimizer, State, check_usual, sign_and_decay, zeros
from tesserack.optim._rules import Rule
from tesserack.optim.optimizer import Group, Optimizer, require

__all__ = ["NAdam", "RAdam"]


_STATES, _NUMBERS = "exp_avg exp_avg_sq", "sign decay shrink weight beta2 weight_sq"
_MOMENTS = f"""{DECAYED}
exp_avg = exp_avg + weight * (k - exp_avg)
exp_avg_sq = beta2 * exp_avg_sq + weight_sq * k * k
"""
_NADAM = Rule(
    _STATES,
    f"{_NUMBERS} correction of_grad of_mean eps",
    f"""{_MOMENTS}
    scale = sqrt(exp_avg_sq / correction) + eps
    param = param * shrink - of_grad * k / scale - of_mean * exp_avg / scale""",
)
_RADAM = Rule(
    _STATES,
    f"{_NUMBERS} rate eps",
    f"{_MOMENTS} param = param * shrink - rate * exp_avg / (sqrt(exp_avg_sq) + eps)",
)
_RADAM_EARLY = Rule(_STATES, f"{_NUMBERS} rate", f"{_MOMENTS} param = param * shrink - rate * exp_avg")


class _Decaying(EachOptimizer):
    """Weight decay in the gradient or, decoupled, in the parameter; two moments."""

    def _check_group(self, group: Group) -> None:
        check_usual(group)

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        state["exp_avg"], state["exp_avg_sq"] = zeros(param), zeros(param)

    def _moments(self, group: Group) -> tuple[float, ...]:
        """The first numbers of a rule: sign, decay in the gradient, factor of the parameter, and of the moments."""
        sign, decay = sign_and_decay(group)
        beta1, beta2 = map(number, group["betas"])
        shrink = 1.0
        if group["decoupled_weight_decay"]:
            decay, shrink = 0.0, 1 - number(group["lr"]) * decay
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

    def _rule(self, state: State, group: Group) -> tuple[Rule, tuple[float, ...]]:
        (_, beta2), step, rate = group["betas"], state["step"], number(group["lr"])
        now, following = self._weights(state, group)
        of_grad = rate * (1 - now) / (1 - state["mu_product"])
        of_mean = rate * following / (1 - state["mu_product"] * following)
        numbers = (*self._moments(group), 1 - number(beta2) ** step, of_grad, of_mean, number(group["eps"]))
        return _NADAM, numbers

    def _weights(self, state: State, group: Group) -> tuple[float, float]:
        """What the mean weighs in this step and the next; their product is counted on."""
        step, decay = state["step"], group["momentum_decay"]
        now, following = (number(group["betas"][0]) * (1 - 0.5 * 0.96 ** (t * decay)) for t in (step, step + 1))
        state["mu_product"] = state["mu_product"] * now
        return now, following


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

    def _rule(self, state: State, group: Group) -> tuple[Rule, tuple[float, ...]]:
        factor, step = _rectified(group["betas"], state["step"]), state["step"]
        rate = number(group["lr"]) / (1 - number(group["betas"][0]) ** step)
        if factor is None:
            return _RADAM_EARLY, (*self._moments(group), rate)
        return _RADAM, (*self._moments(group), rate * factor, number(group["eps"]))


def _rectified(betas: tuple[float, float], step: float) -> float | None:
    """What the update is multiplied by before it is divided by the second moment's root; None while that is unsure."""
    beta2 = number(betas[1])
    correction = 1 - beta2**step
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / correction  # of the average, as a simple moving one
    if length <= 5:
        return None
    top = (length - 4) * (length - 2) * longest
    factor: float = (top / ((longest - 4) * (longest - 2) * length) * correction) ** 0.5
    return factor
