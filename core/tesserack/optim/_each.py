"""Optimizers that update one parameter after the other, by tensor operations."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.optim.optimizer import Group, Optimizer, require

State = dict[str, Any]


class EachOptimizer(Optimizer):
    """A step of one parameter at a time: subclasses define ``_start`` and ``_step_one``.

    Complex parameters are seen as pairs of real numbers.
    """

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        """Fill the state of a parameter at its first step."""

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        """Update ``param``, and ``state``, whose step is counted already."""
        raise NotImplementedError(f"{type(self).__name__}: define _step_one()")

    def _update(self, group: Group) -> None:
        for param in group["params"]:
            if param.grad is None:
                continue
            refuse_capturable(group, param)
            state = self.state[param]
            if not state:
                state["step"] = 0
                self._start(state, param, group)
            state["step"] += 1
            grad = -param.grad if group.get("maximize") else param.grad
            if not param.is_complex():
                self._step_one(param, grad, state, group)
                continue
            seen = {key: _as_real(value) for key, value in state.items()}
            self._step_one(as_real(param), as_real(grad.resolve_conj()), seen, group)
            state.update({key: value for key, value in seen.items() if not isinstance(value, Tensor)})


def _as_real(value: Any) -> Any:
    return as_real(value) if isinstance(value, Tensor) and value.is_complex() else value


def as_real(tensor: Tensor) -> Tensor:
    """A view of complex numbers as pairs."""
    module: Any = ts
    return module.view_as_real(tensor)  # type: ignore[no-any-return]


def refuse_capturable(group: Group, param: Tensor) -> None:
    """``capturable`` is for accelerators, as in PyTorch."""
    if group.get("capturable") and param.device.type == "cpu":
        raise AssertionError(
            "If capturable=True, params and state_steps must be on an accelerator, got a parameter on cpu; "
            "leave capturable=False"
        )


def decayed(grad: Tensor, param: Tensor, group: Group) -> Tensor:
    """The gradient with the group's weight decay added."""
    decay = group["weight_decay"]
    return grad.add(param, alpha=decay) if decay else grad


def check_usual(group: Group) -> None:
    """The ranges of the options that most optimizers share."""
    require(group["lr"] >= 0, "learning rate", group["lr"], "lr >= 0")
    if "eps" in group and not isinstance(group["eps"], tuple):
        require(group["eps"] >= 0, "epsilon value", group["eps"], "eps >= 0")
    for i, beta in enumerate(group.get("betas", ())):
        require(0 <= beta < 1, f"beta parameter at index {i}", beta, "0 <= beta < 1")
    require(group.get("weight_decay", 0) >= 0, "weight_decay value", group.get("weight_decay"), "weight_decay >= 0")


def moments(grad: Tensor, state: State, betas: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """The running mean of the gradient and of its square, updated."""
    beta1, beta2 = betas
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    mean.lerp_(grad, 1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    return mean, square


def zeros(param: Tensor) -> Tensor:
    """What states start from."""
    return ts.zeros_like(param, memory_format=ts.preserve_format)


def kept(value: Tensor, group: Group) -> Tensor:
    """``value`` as the gradient of a differentiable step may read it later: states are changed in place."""
    return value.clone() if group.get("differentiable") else value
