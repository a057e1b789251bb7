"""Stochastic gradient descent."""

from __future__ import annotations

import functools
from typing import Any, cast

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.optim._counts import number, refuse_traced_start
from tesserack.optim._each import as_real, as_reals
from tesserack.optim._rules import Rule
from tesserack.optim.optimizer import Group, Optimizer, require, same_kind

__all__ = ["SGD"]


class SGD(Optimizer):
    """Gradient descent with momentum (Sutskever et al., 2013), as PyTorch writes it.

    ``g = grad + weight_decay * param``; with momentum ``buffer = momentum * buffer + (1 - dampening) * g``, starting
    at ``g``, and ``g = buffer`` (``g + momentum * buffer`` with ``nesterov``); ``param -= lr * g``. ``maximize``
    turns the sign of the gradient. ``foreach`` and ``fused`` are accepted and change nothing: steps are always fused.

    Raises ``ValueError`` for negative options, and for ``nesterov`` without momentum or with dampening.

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(2))
    >>> opt = optim.SGD([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> w.tolist()
    [0.0, 0.0]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: Group) -> None:
        require(group["lr"] >= 0, "learning rate", group["lr"], "lr >= 0")
        require(group["momentum"] >= 0, "momentum", group["momentum"], "momentum >= 0")
        require(group["weight_decay"] >= 0, "weight_decay value", group["weight_decay"], "weight_decay >= 0")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")

    def _update(self, group: Group) -> None:
        if group.get("differentiable"):
            for param in group["params"]:
                if param.grad is not None:
                    self._recorded(group, param, param.grad)
            return
        names = ("momentum_buffer",) if group["momentum"] else ()
        found = _native._step_lists(group["params"], self.state, names)
        if found is not None:
            params, grads, *buffers = found
            self._step_plain(group, params, grads, buffers[0] if buffers else [], False)
            return
        if not group["momentum"]:
            for params in same_kind(group["params"]):
                self._fused(group, params, [], False)
            return
        states = self.state
        for params in same_kind(group["params"]):
            new = [param for param in params if "momentum_buffer" not in states[param]]
            for param in new:
                refuse_traced_start(type(self).__name__)
                states[param]["momentum_buffer"] = ts.zeros_like(param)
            old = [param for param in params if param not in set(new)] if new else params
            for chosen, first_step in ((old, False), (new, True)):
                if chosen:
                    self._fused(group, chosen, [states[param]["momentum_buffer"] for param in chosen], first_step)

    def _fused(self, group: Group, params: list[Tensor], buffers: list[Tensor], first_step: bool) -> None:
        grads = as_reals([cast("Tensor", param.grad) for param in params], read=True)
        self._step_plain(group, as_reals(params), grads, as_reals(buffers), first_step)

    def _step_plain(
        self, group: Group, params: list[Tensor], grads: list[Tensor], buffers: list[Tensor], first_step: bool
    ) -> None:
        ts.sgd_step_(
            params,
            grads,
            buffers,
            float(group["lr"]),
            float(group["momentum"]),
            float(group["dampening"]),
            float(group["weight_decay"]),
            bool(group["nesterov"]),
            bool(group["maximize"]),
            first_step,
        )

    def _recorded(self, group: Group, param: Tensor, grad: Tensor) -> None:
        """The step by operations that autograd sees."""
        state = self.state[param]
        first = bool(group["momentum"]) and "momentum_buffer" not in state
        if first:
            state["momentum_buffer"] = ts.zeros_like(param)
        names = ("lr", "momentum", "dampening", "weight_decay", "maximize")
        rule = _rule(bool(group["momentum"]), bool(group["nesterov"]), first, group["weight_decay"] != 0)
        seen = {name: state[name] for name in rule.states}
        if param.is_complex():
            param, grad = as_real(param), as_real(grad.resolve_conj())
            seen = {name: as_real(value) for name, value in seen.items()}
        rule.step(param, grad, seen, tuple(number(group[name]) for name in names))


@functools.cache
def _rule(momentum: bool, nesterov: bool, first_step: bool, decay: bool) -> Rule:
    return Rule.of(_native._sgd_rule(momentum, nesterov, first_step, bool(decay)))
