"""Optimizers whose step is a pointwise program, or tensor operations, for each parameter."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor, _native, ops
from tesserack.optim._counts import (
    NUMBERS,
    as_counter,
    count_steps,
    count_traced,
    counter,
    number,
    numbers_of,
    refuse_traced_counts,
    refuse_traced_start,
)
from tesserack.optim._rules import Rule
from tesserack.optim.optimizer import Group, require

State = dict[str, Any]
_COUNTS = ("step", *NUMBERS)


#: The start of most rules: the gradient with its sign, and weight decay added. Their first numbers are these two.
DECAYED = "k = select(decay > 0, sign * grad + decay * param, sign * grad)"  # zero times infinity is no number


class EachOptimizer:
    """A step of one parameter at a time: subclasses define ``_start``, and ``_rule`` or ``_step_one``.

    Stands before ``Optimizer`` among the bases, whose direct subclasses programs list to find optimizers by name.
    Where nothing of the step is recorded, one call steps all parameters that share a rule and its numbers; else it runs
    by single operators, which autograd follows. ``_step_one`` is for steps that no rule states: sparse ones above all.
    Complex parameters are seen as pairs of real numbers.
    """

    state: Any
    _takes_sparse = False
    _counts_in_tensors = True

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        """Fill the state of a parameter at its first step."""

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        """Update ``param``, and ``state``, whose step is counted already."""
        raise NotImplementedError(f"{type(self).__name__}: define _step_one()")

    def _rule(self, state: State, group: Group) -> tuple[Rule, tuple[float, ...]] | None:
        """The step and its numbers; called once in a step, and may change numbers in ``state``."""
        return None

    def _update(self, group: Group) -> None:
        together: dict[Any, list[Tensor]] = {}
        for param in group["params"]:
            if param.grad is None:
                continue
            refuse_capturable(group, param)
            if param.grad.layout is not ts.strided and not self._takes_sparse:
                raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")
            state = self.state[param]
            if not state:
                refuse_traced_start(type(self).__name__)
                state["step"] = counter(0.0) if self._counts_in_tensors else 0
                self._start(state, param, group)
            traced = _native._is_tracing()
            if self._counts_in_tensors and traced:
                (step,) = numbers_of([count_traced([state])])
            elif self._counts_in_tensors:
                (step,) = count_steps([state])
            else:
                step = state["step"] = int(state["step"]) + 1
            seen = _Seen(state, step, param.is_complex())
            ruled = self._rule(seen, group) if param.grad.layout is ts.strided else None
            if traced and not self._is_constant(state, step, param, group, ruled):
                refuse_traced_counts(type(self).__name__, "these options")
            if ruled is not None and _is_plain(param, group):
                together.setdefault((*ruled, param.dtype, param.device), []).append(param)
            else:
                self._step_apart(param, param.grad, seen, group, ruled)
            seen.keep(state)
        for (rule, numbers, _, _), params in together.items():
            lists: list[list[Tensor]] = [[self.state[param][name] for param in params] for name in rule.states]
            lists += [[]] * (3 - len(lists))
            ops._optimizer_step_(rule.text, params, [param.grad for param in params], *lists, *numbers)

    def _is_constant(self, state: State, step: float, param: Tensor, group: Group, ruled: Any) -> bool:
        """Whether the next step has the numbers of this one, which a trace keeps."""
        seen = _Seen(state, step + 1, param.is_complex())
        return ruled is not None and not seen._numbers and self._rule(seen, group) == ruled

    def _step_apart(self, param: Tensor, grad: Tensor, state: State, group: Group, ruled: Any) -> None:
        """By single operators; complex numbers are pairs of real ones."""
        if param.is_complex():
            param, grad = as_real(param), as_real(grad.resolve_conj())
        if ruled is not None:
            rule, numbers = ruled
            rule.step(param, grad, state, numbers)
        else:
            self._step_one(param, -grad if group.get("maximize") else grad, state, group)


class _Seen(dict[str, Any]):
    """A state as a step sees it: counts and rates as numbers, complex values as pairs."""

    def __init__(self, state: State, step: float, is_complex: bool) -> None:
        super().__init__(state, step=step)
        self._is_complex = is_complex
        # Those that a gradient is recorded of stay the tensors that they are.
        self._recorded = [name for name in NUMBERS if name in state and isinstance(number(state[name]), Tensor)]
        self._numbers = [name for name in NUMBERS if name in state and name not in self._recorded]
        if self._numbers:
            values = numbers_of([as_counter(state, name) for name in self._numbers])
            self.update(zip(self._numbers, values, strict=True))
        if is_complex:
            self.update({key: _as_real(value) for key, value in self.items()})

    def keep(self, state: State) -> None:
        """Write back what has changed; tensors change in place."""
        if self._numbers:
            _native._set_host_numbers(
                [state[name] for name in self._numbers], [float(self[name]) for name in self._numbers]
            )
        for key, value in self.items():
            counted = key in _COUNTS and key not in self._recorded
            if value is not state.get(key) and not counted and not (self._is_complex and key in state):
                state[key] = value


def _is_plain(param: Tensor, group: Group) -> bool:
    """Whether a step of it is what the fused operator computes."""
    grad = param.grad
    return (
        param.is_floating_point()
        and not group.get("differentiable")
        and grad is not None
        and not grad.is_sparse
        and (grad.dtype == param.dtype and grad.shape == param.shape)
    )


def sign_and_decay(group: Group) -> tuple[float, float]:
    """The first two numbers of most rules."""
    return -1.0 if group["maximize"] else 1.0, number(group["weight_decay"])


def _as_real(value: Any) -> Any:
    return as_real(value) if isinstance(value, Tensor) and value.is_complex() else value


def as_real(tensor: Tensor) -> Tensor:
    """A view of complex numbers as pairs."""
    module: Any = ts
    return module.view_as_real(tensor)  # type: ignore[no-any-return]


def as_reals(tensors: list[Tensor], read: bool = False) -> list[Tensor]:
    """Tensors of one dtype as the fused steps take them: complex ones as pairs."""
    if not tensors or not tensors[0].is_complex():
        return tensors
    return [as_real(tensor.resolve_conj() if read else tensor) for tensor in tensors]


def refuse_capturable(group: Group, param: Tensor) -> None:
    """``capturable`` is for accelerators, as in PyTorch."""
    if group.get("capturable") and param.device.type == "cpu":
        raise AssertionError(
            "If capturable=True, params and state_steps must be on an accelerator, got a parameter on cpu; "
            "leave capturable=False"
        )


def check_usual(group: Group) -> None:
    """The ranges of the options that most optimizers share."""
    require(group["lr"] >= 0, "learning rate", group["lr"], "lr >= 0")
    if "eps" in group and not isinstance(group["eps"], tuple):
        require(group["eps"] >= 0, "epsilon value", group["eps"], "eps >= 0")
    for i, beta in enumerate(group.get("betas", ())):
        require(0 <= beta < 1, f"beta parameter at index {i}", beta, "0 <= beta < 1")
    require(group.get("weight_decay", 0) >= 0, "weight_decay value", group.get("weight_decay"), "weight_decay >= 0")


def zeros(param: Tensor) -> Tensor:
    """What states start from."""
    return ts.zeros_like(param, memory_format=ts.preserve_format)
