"""softmax and log_softmax with their gradients, one launch each."""

from __future__ import annotations

from collections.abc import Callable

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import accumulator, name_of
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.templates._registry import template
from tesserack_kernelgen.templates._rows import Rows

__all__ = ["log_softmax", "log_softmax_backward", "softmax", "softmax_backward"]


def _rows(call: Call, names: tuple[str, ...]) -> tuple[Rows, Callable[[str], LaunchPlan]]:
    """Rows along dim ``params[0]``, with the inputs by name, and a function that stores the output."""
    out, dim = call.outputs[0], call.params[0]
    kernel = Kernel(call, call.op)
    rows = Rows(kernel, _without(out.shape, dim), (out.shape[dim],), accumulator(name_of(out.dtype)))
    for k, name in enumerate(names):
        x = call.inputs[k]
        rows.element(name, kernel.input(k), _without(x.strides, dim), (x.strides[dim],))

    def plan(expression: str) -> LaunchPlan:
        rows.store(kernel.output(0), _without(out.strides, dim), (out.strides[dim],), expression)
        return LaunchPlan([rows.launch()])

    return rows, plan


def _without(values: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*values[:dim], *values[dim + 1 :])


@template("softmax", fuses=(0,), finishes=True)
def softmax(call: Call) -> LaunchPlan:
    """``exp(x - max) / sum``."""
    rows, plan = _rows(call, ("x",))
    rows.stage("top", "max", "x")
    rows.stage("total", "sum", f"{rows.exp}(x - top)")
    return plan(f"{rows.exp}(x - top) / total")


@template("log_softmax", fuses=(0,), finishes=True)
def log_softmax(call: Call) -> LaunchPlan:
    """``x - max - log(sum)``."""
    rows, plan = _rows(call, ("x",))
    rows.stage("top", "max", "x")
    rows.stage("total", "sum", f"{rows.exp}(x - top)")
    rows.let("shift", "log(total)")
    return plan("x - top - shift")


@template("softmax_backward", fuses=(0,), finishes=True)
def softmax_backward(call: Call) -> LaunchPlan:
    """``y * (g - sum(g * y))``."""
    rows, plan = _rows(call, ("g", "y"))
    rows.stage("total", "sum", "g * y")
    return plan("y * (g - total)")


@template("log_softmax_backward", fuses=(0,), finishes=True)
def log_softmax_backward(call: Call) -> LaunchPlan:
    """``g - exp(y) * sum(g)``."""
    rows, plan = _rows(call, ("g", "y"))
    rows.stage("total", "sum", "g")
    return plan(f"g - {rows.exp}(y) * total")
