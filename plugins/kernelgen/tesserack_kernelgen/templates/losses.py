"""Negative log likelihood of class indices, with its gradient. Targets are checked on the device."""

from __future__ import annotations

import math

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import accumulator, name_of
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.templates._registry import template
from tesserack_kernelgen.templates._rows import Rows
from tesserack_kernelgen.templates.pointwise import Elementwise

__all__ = ["nll_loss", "nll_loss_backward"]

_NONE, _MEAN = 0, 1


def _weight(kernel: Kernel, k: int, c: str) -> str:
    """An expression for the weight of the class ``at``."""
    operand = kernel.call.inputs[k]
    if not hasattr(operand, "strides"):
        return "1"
    return kernel.input(k).load(f"(idx)at * {kernel.index(operand.strides[0])}", c)


@template("nll_loss_forward")
def nll_loss(call: Call) -> LaunchPlan:
    """Outputs loss and total weight of inputs x (N, C, ...), target (N, ...), weight, all contiguous but the weight;
    ``params`` reduction, ignore_index.
    """
    (x, target, _), (reduction, ignored) = call.inputs, call.params
    kernel = Kernel(call, "nll_loss")
    c = accumulator(name_of(x.dtype))
    rows, picked = kernel.input(0), kernel.input(1)
    bound, skip = kernel.index(x.shape[1]), kernel.number(ignored, "i64")
    inner = kernel.index(max(1, math.prod(x.shape[2:])))
    at = f"((idx)r / {inner} * {bound} + (idx)at) * {inner} + (idx)r % {inner}"
    code = f"""const i64 at = {picked.load("r", "i64")};
    {c} weight = 0, loss = 0;
    if (at != {skip}) {{
      if (at < 0 || at >= {bound}) {{ {kernel.fault("index", "at")} }}
      else {{ weight = {_weight(kernel, 2, c)}; loss = -weight * {rows.load(at, c)}; }}
    }}"""
    one = Rows(kernel, (), (math.prod(target.shape),), c)
    one.code(code)
    if reduction == _NONE:
        one.store(kernel.output(0), (), (1,), "loss")
        one.store_row(kernel.output(1), (), "0")
        return LaunchPlan([one.launch()])
    one.stage("losses", "sum", "loss")
    one.stage("weights", "sum", "weight")
    one.store_row(kernel.output(0), (), "losses / weights" if reduction == _MEAN else "losses")
    one.store_row(kernel.output(1), (), "weights")
    return LaunchPlan([one.launch()])


@template("nll_loss_backward")
def nll_loss_backward(call: Call) -> LaunchPlan:
    """Output dx (N, C, ...) of inputs grad, target, weight, total; ``params`` input size, reduction, ignore_index."""
    out, _, (_, reduction, ignored) = call.outputs[0], call.inputs, call.params
    kernel = Kernel(call, "nll_loss_backward")
    result, given, picked = kernel.output(0), kernel.input(0), kernel.input(1)
    c = accumulator(result.dtype)
    skip, classes = kernel.number(ignored, "i64"), kernel.index(out.shape[1])
    divided = f" / {kernel.input(3).load('0', c)}" if reduction == _MEAN else ""
    weight = _weight(kernel, 2, c)

    def body(at: list[str]) -> str:
        value = f"-{given.load(at[1], c)} * {weight}{divided}"
        return f"""  const i64 at = {picked.load(at[2], "i64")};
  if (at != {skip} && (at < 0 || at >= {classes})) {{ {kernel.fault("index", "at")} return; }}
  const {c} v = at != {skip} && at == {at[3]} ? {value} : 0;
  {result.store(at[0], "v", c)}"""

    # Over samples, classes and places; the last index is the number of the class.
    inner = math.prod(out.shape[2:])
    shape, targets = (*out.shape[:2], inner), (inner, 0, 1)
    strides = [(out.shape[1] * inner, inner, 1), targets if reduction == _NONE else (0, 0, 0), targets, (0, 1, 0)]
    return Elementwise(kernel, shape, strides, body).plan()
