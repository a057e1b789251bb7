"""Adafactor."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.optim._each import EachOptimizer, State, check_usual
from tesserack.optim.optimizer import Group, Optimizer, require

__all__ = ["Adafactor"]


class Adafactor(EachOptimizer, Optimizer):
    """Adafactor (Shazeer and Stern, arXiv:1804.04235): the second moment of a matrix kept as a row and a column.

    The step is relative to the parameter's root mean square, at least ``eps[1]``, and the update is clipped to a root
    mean square of ``d``. ``lr`` bounds ``1 / sqrt(step)``; ``beta2_decay`` is the exponent of the moments' weight;
    ``eps[0]`` None is that of the dtype. ``foreach`` is accepted and changes nothing.
    Raises ``ValueError`` for negative lr, eps or weight_decay, a positive beta2_decay, and d below 1.

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(2, 2))
    >>> opt = optim.Adafactor([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> [round(x, 4) for x in w.flatten().tolist()]
    [0.5, 0.5, 0.5, 0.5]
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: Group) -> None:
        check_usual(group)
        require(group["beta2_decay"] <= 0, "beta2_decay", group["beta2_decay"], "beta2_decay <= 0")
        require(group["eps"][0] is None or group["eps"][0] >= 0, "epsilon1", group["eps"][0], "None or eps >= 0")
        require(group["eps"][1] >= 0, "epsilon2", group["eps"][1], "eps >= 0")
        require(group["d"] >= 1, "clipping threshold d", group["d"], "d >= 1")

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        if param.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        if param.ndim > 1:
            rows, columns = list(param.shape), list(param.shape)
            rows[-1] = columns[-2] = 1
            state["row_var"], state["col_var"] = param.new_zeros(rows), param.new_zeros(columns)
        else:
            state["variance"] = ts.zeros_like(param)

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        tiny, least = group["eps"]
        tiny = ts.finfo(param.dtype).eps if tiny is None else tiny
        rate, step = float(group["lr"]), state["step"]
        weight = step ** group["beta2_decay"]
        size = max(least, param.norm(2).item() / param.numel() ** 0.5) * min(rate, 1 / step**0.5)
        if group["weight_decay"]:
            param.mul_(1 - rate * group["weight_decay"])
        if grad.ndim > 1:
            rows, columns = state["row_var"], state["col_var"]
            rows.lerp_(grad.square().mean(-1, True), weight)
            columns.lerp_(grad.square().mean(-2, True), weight)
            moment = (rows @ columns).div_(rows.mean(-2, True).clamp_(min=tiny))
        else:
            state["variance"].lerp_(grad.square(), weight)
            moment = state["variance"].clone()
        update = moment.clamp_(min=tiny * tiny).rsqrt_().mul_(grad)
        clipped = max(1.0, update.norm(2).item() / (update.numel() ** 0.5 * group["d"]))
        param.add_(update, alpha=-size / clipped)
