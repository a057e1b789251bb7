"""Adagrad."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.optim._counts import counter, number
from tesserack.optim._each import DECAYED, EachOptimizer, State, check_usual, sign_and_decay
from tesserack.optim._rules import Rule
from tesserack.optim.optimizer import Group, Optimizer, require

__all__ = ["Adagrad"]


_RULE = Rule(
    "sum",
    "sign decay rate eps",
    f"""{DECAYED}
    sum = sum + k * k
    param = param - rate * k / (sqrt(sum) + eps)""",
)


class Adagrad(EachOptimizer, Optimizer):
    """Adagrad (Duchi et al., JMLR 2011).

    ``v += g * g`` and ``param -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(v) + eps)``, v starting at
    ``initial_accumulator_value``. ``foreach`` and ``fused`` are accepted and change nothing.
    Raises ``ValueError`` for negative options.

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(1))
    >>> opt = optim.Adagrad([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> round(w.item(), 4)
    0.5
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        # The state is there from the start, so that other programs may share it before the first step.
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["step"] = counter(0.0)
                self._start(self.state[param], param, group)

    _takes_sparse = True

    def _check_group(self, group: Group) -> None:
        check_usual(group)
        for name in ("lr_decay", "initial_accumulator_value"):
            require(group[name] >= 0, f"{name} value", group[name], f"{name} >= 0")

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        value: Any = group["initial_accumulator_value"]
        value = complex(value, value) if param.is_complex() else value
        state["sum"] = ts.full_like(param.detach(), value, memory_format=ts.preserve_format)

    def share_memory(self) -> None:
        """Let other processes see the state; see ``Tensor.share_memory_``."""
        for state in self.state.values():
            state["step"].share_memory_()
            state["sum"].share_memory_()

    def _rule(self, state: State, group: Group) -> tuple[Rule, tuple[float, ...]]:
        rate = number(group["lr"]) / (1 + (state["step"] - 1) * group["lr_decay"])
        return _RULE, (*sign_and_decay(group), rate, number(group["eps"]))

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        """The step where a sparse gradient has elements."""
        rate = number(group["lr"]) / (1 + (state["step"] - 1) * group["lr_decay"])
        squares = state["sum"]
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        grad = grad.coalesce()
        squares.add_(grad.pow(2))
        scale = squares.sparse_mask(grad)._values().sqrt().add(group["eps"])
        step = ts.sparse_coo_tensor(grad._indices(), grad._values() / scale, grad.shape, is_coalesced=True)
        param.add_(step, alpha=-rate)
