"""Counts of steps and other numbers of optimizers' states, which are tensors of no dims on the cpu as in PyTorch.

They are read and written as numbers, without a call of an operator: there is one for each parameter.
"""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor, _native

__all__ = [
    "NUMBERS",
    "as_counter",
    "count_steps",
    "count_traced",
    "counter",
    "number",
    "numbers_of",
    "refuse_traced_counts",
    "refuse_traced_start",
]

State = dict[str, Any]

# Those beside "step".
NUMBERS = ("eta", "mu", "mu_product")


def counter(value: float) -> Tensor:
    """A number as states have it: of float64 if that is the default dtype, and of float32 else."""
    dtype = ts.float64 if ts.get_default_dtype() is ts.float64 else ts.float32
    return ts.tensor(value, dtype=dtype, device="cpu")


def as_counter(state: State, name: str) -> Tensor:
    """The number of a state; what a program or a file has put there instead is made one."""
    value = state[name]
    if not isinstance(value, Tensor) or value.device.type != "cpu" or value.ndim or not value.is_floating_point():
        value = state[name] = counter(float(value))
    return value


def number(value: Any) -> Any:
    """An option as a step takes it: the tensor that it is where a gradient of it is being recorded, else a number."""
    return value if isinstance(value, Tensor) and value.requires_grad and ts.is_grad_enabled() else float(value)


def numbers_of(tensors: list[Tensor]) -> list[float]:
    """What the tensors hold."""
    found: list[float] = _native._host_numbers(tensors)
    return found


def count_steps(states: list[State]) -> list[float]:
    """Count one step more in each state; the counts."""
    try:
        tensors = [state["step"] for state in states]
        before = numbers_of(tensors)
    except TypeError:
        tensors = [as_counter(state, "step") for state in states]
        before = numbers_of(tensors)
    counts = [number + 1 for number in before]
    _native._set_host_numbers(tensors, counts)
    return counts


def count_traced(states: list[State]) -> Tensor:
    """The same in a program that is traced, by operators; the count, where it is one. ``RuntimeError``"""
    tensors = [as_counter(state, "step") for state in states]
    if len(set(numbers_of(tensors))) > 1:
        raise RuntimeError(
            "jit: expected parameters that have made as many steps each, since a traced step has one count for all; "
            "let all of them make their steps together"
        )
    with ts.no_grad():
        for tensor in tensors:
            tensor.add_(1)
    return tensors[0]


def refuse_traced_counts(optimizer: str, why: str) -> None:
    """``RuntimeError`` in a program that is traced: numbers that follow from the count of steps would stay."""
    if _native._is_tracing():
        raise RuntimeError(
            f"jit: {optimizer} with {why} computes numbers from its count of steps outside of operators, and a trace "
            "would go on with those of now; trace what comes before step(), or use SGD, Adam or AdamW"
        )


def refuse_traced_start(optimizer: str) -> None:
    """``RuntimeError`` in a program that is traced: every run of it would start the state anew."""
    if _native._is_tracing():
        raise RuntimeError(
            f"jit: expected an optimizer that has made a step, since a trace of {optimizer}'s first would start its "
            "state in every run; call the function once before it is traced"
        )
