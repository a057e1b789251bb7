"""Adam and AdamW."""

from __future__ import annotations

import functools
from typing import Any, cast

import tesserack as ts
from tesserack import Tensor, _native, ops
from tesserack.optim._counts import (
    count_steps,
    count_traced,
    counter,
    number,
    refuse_traced_counts,
    refuse_traced_start,
)
from tesserack.optim._each import as_real, as_reals, refuse_capturable
from tesserack.optim._rules import Rule
from tesserack.optim.optimizer import Group, Optimizer, require, same_kind

__all__ = ["Adam", "AdamW"]

_STATES = ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")


class Adam(Optimizer):
    """Adam (Kingma and Ba, arXiv:1412.6980); ``amsgrad`` as in Reddi et al. (ICLR 2018).

    ``m = beta1 * m + (1 - beta1) * g``, ``v = beta2 * v + (1 - beta2) * g * g``, both divided by ``1 - beta ** step``,
    and ``param -= lr * m / (sqrt(v) + eps)``. ``weight_decay`` is added to the gradient, or with
    ``decoupled_weight_decay`` taken from the parameter (then this is :class:`AdamW`). ``maximize`` turns the sign of
    the gradient. ``foreach`` and ``fused`` are accepted and change nothing: steps are always fused.

    Raises ``ValueError`` for negative lr, eps or weight_decay, and for betas outside [0, 1).

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(2))
    >>> opt = optim.Adam([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> [round(x, 4) for x in w.tolist()]
    [0.5, 0.5]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)
        if not any(all(isinstance(beta, kind) for beta in betas) for kind in (float, Tensor)):
            raise ValueError("betas must be either both floats or both Tensors")  # PyTorch takes no integers here

    def _check_group(self, group: Group) -> None:
        require(group["lr"] >= 0, "learning rate", group["lr"], "lr >= 0")
        require(group["eps"] >= 0, "epsilon value", group["eps"], "eps >= 0")
        require(group["weight_decay"] >= 0, "weight_decay value", group["weight_decay"], "weight_decay >= 0")
        plain = group["foreach"] and not group["capturable"]
        if plain and isinstance(group["lr"], Tensor):
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        tensors = [isinstance(beta, Tensor) for beta in group["betas"]]
        if any(tensors) and not all(tensors):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, beta in enumerate(group["betas"]):
            if plain and tensors[i]:
                raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
            require(0 <= beta < 1, f"beta parameter at index {i}", beta, "0 <= beta < 1")

    def _update(self, group: Group) -> None:
        if self._update_at_once(group):
            return
        for params in same_kind(group["params"]):
            refuse_capturable(group, params[0])
            if group.get("differentiable"):
                refuse_traced_counts(type(self).__name__, "differentiable=True")
                states = self._started_states(params, group["amsgrad"])
                for param, state, step in zip(params, states, count_steps(states), strict=True):
                    self._recorded(group, param, cast("Tensor", param.grad), state, step)
                continue
            states = self._started_states(params, group["amsgrad"])
            if _native._is_tracing():
                self._fused(group, params, states, count_traced(states))
                continue
            steps = count_steps(states)
            if steps.count(steps[0]) == len(steps):
                self._fused(group, params, states, steps[0])
                continue
            for step in dict.fromkeys(steps):
                rows = [row for row in zip(params, states, steps, strict=True) if row[2] == step]
                self._fused(group, [param for param, _, _ in rows], [state for _, state, _ in rows], step)

    def _update_at_once(self, group: Group) -> bool:
        """The step where all parameters are plain and have made as many steps: none is looked at in Python."""
        if group["capturable"] or group.get("differentiable"):
            return False
        amsgrad = group["amsgrad"]
        found = _native._step_lists(group["params"], self.state, _STATES if amsgrad else _STATES[:3])
        if found is None:
            return False
        params, grads, counts, means, squares, *tops = found
        if (step := _native._count_together(counts)) is None:
            return False
        self._step_plain(group, params, grads, means, squares, tops[0] if amsgrad else [], step)
        return True

    def _started_states(self, params: list[Tensor], amsgrad: bool) -> list[dict[str, Any]]:
        """The states of ``params``, started if need be."""
        states = [self.state[param] for param in params]
        for param, state in zip(params, states, strict=True):
            if not state:
                refuse_traced_start(type(self).__name__)
                state["step"] = counter(0.0)
                state["exp_avg"] = ts.zeros_like(param)
                state["exp_avg_sq"] = ts.zeros_like(param)
            if amsgrad and "max_exp_avg_sq" not in state:
                state["max_exp_avg_sq"] = ts.zeros_like(param)
        return states

    def _fused(self, group: Group, params: list[Tensor], states: list[dict[str, Any]], step: float | Tensor) -> None:
        self._step_plain(
            group,
            as_reals(params),
            as_reals([cast("Tensor", param.grad) for param in params], read=True),
            as_reals([state["exp_avg"] for state in states]),
            as_reals([state["exp_avg_sq"] for state in states]),
            as_reals([state["max_exp_avg_sq"] for state in states] if group["amsgrad"] else []),
            step,
        )

    def _step_plain(
        self,
        group: Group,
        params: list[Tensor],
        grads: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
        tops: list[Tensor],
        step: float | Tensor,
    ) -> None:
        beta1, beta2 = group["betas"]
        counted = isinstance(step, Tensor)
        make_step: Any = ops._adam_step_counted_ if counted else ts.adam_step_
        make_step(
            params,
            grads,
            means,
            squares,
            tops,
            step if counted else int(step),
            float(group["lr"]),
            float(beta1),
            float(beta2),
            float(group["weight_decay"]),
            float(group["eps"]),
            bool(group["amsgrad"]),
            bool(group["maximize"]),
            bool(group.get("decoupled_weight_decay", False)),
        )

    def _recorded(self, group: Group, param: Tensor, grad: Tensor, state: dict[str, Any], step: float) -> None:
        """The step by operations that autograd sees."""
        seen = {name: value for name, value in state.items() if name != "step"}
        if param.is_complex():
            param, grad = as_real(param), as_real(grad.resolve_conj())
            seen = {name: as_real(value) for name, value in seen.items()}
        beta1, beta2 = (number(beta) for beta in group["betas"])
        decay = number(group["weight_decay"])
        numbers = (step, number(group["lr"]), beta1, beta2, decay, number(group["eps"]), float(group["maximize"]))
        decoupled = bool(group.get("decoupled_weight_decay", False))
        rule = _rule(bool(group["amsgrad"]), bool(decay != 0), decoupled, bool(beta1 > 0.5))
        rule.step(param, grad, seen, numbers)


@functools.cache
def _rule(amsgrad: bool, decay: bool, decoupled: bool, from_mean: bool) -> Rule:
    return Rule.of(_native._adam_rule(amsgrad, decay, decoupled, from_mean))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101).

    ``param *= 1 - lr * weight_decay`` before the update of :class:`Adam`, whose other options it takes.

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(2))
    >>> optim.AdamW([w], lr=0.1).defaults["weight_decay"]
    0.01
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
