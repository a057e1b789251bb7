"""Steps of SGD and Adam: one kernel for a group of parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import accumulator, name_of
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.templates._registry import template

__all__ = ["adam_step", "sgd_step"]


def _lists(call: Call, count: int) -> tuple[list[Any], list[list[int]], tuple[Any, ...]]:
    """The parameters, the numbers of the inputs of each list (empty ones too), and the parameters that are no lists."""
    lengths = [len(p) for p in call.params[:count]]
    starts = [sum(lengths[:k]) for k in range(count)]
    numbers = [list(range(start, start + length)) for start, length in zip(starts, lengths, strict=True)]
    return [call.inputs[k] for k in numbers[0]], numbers, call.params[count:]


def _plan(call: Call, numbers: Sequence[Sequence[int]], step: Any) -> LaunchPlan:
    """Launches for as many parameters at a time as the arguments of a kernel can name."""
    bytes_each = 16 * sum(1 for numbers_of in numbers if numbers_of) + 8
    at_once = max(min((call.device.max_arguments - 128) // bytes_each, 16), 1)
    count = len(numbers[0])
    return LaunchPlan(
        [_group(call, [of[start : start + at_once] for of in numbers], step) for start in range(0, count, at_once)]
    )


def _group(call: Call, numbers: list[Sequence[int]], step: Any) -> Launch:
    """Each parameter has groups of its own; which, says where the groups of each end."""
    kernel = Kernel(call, call.op.rstrip("_"))
    c = accumulator(name_of(call.inputs[numbers[0][0]].dtype))
    before, after = step(kernel, c)
    group = 16 if call.device.serial else call.device.group
    per_group = group * (64 if call.device.serial else 4)
    ends, parts = 0, []
    for k in range(len(numbers[0])):
        tensors = [kernel.input(of[k]) if of else None for of in numbers]
        n = kernel.own_index(call.inputs[numbers[0][k]].numel)
        first = kernel.own_index(ends)
        ends += -(-call.inputs[numbers[0][k]].numel // per_group)
        last = kernel.own_index(ends)
        parts.append(
            f"if (number < {last}) {{\n"
            f"    for (idx i = (number - {first}) * {per_group} + LANE(0), many = 0; "
            f"many < {per_group // group} && i < {n}; ++many, i += {group}) {{\n{after(tensors)}\n    }}\n  }}"
        )
    body = f"  const idx number = GROUP(0);\n{before}\n  " + " else ".join(parts)
    return kernel.launch(body, (ends,), (group,))


@template("sgd_step_")
def sgd_step(call: Call) -> LaunchPlan:
    """As ``sgd_step_``: params, grads and momentum buffers in place."""
    _, numbers, _ = _lists(call, 3)
    _, momentum, dampening, decay, nesterov, maximize, first = call.params[3:]

    def step(kernel: Kernel, c: str) -> Any:
        lr, keep = kernel.param(3, c), kernel.number(momentum, c)
        rest, shrink = kernel.number(1 - dampening, c), kernel.number(decay, c)

        def one(tensors: list[Tensor | None]) -> str:
            p, g, buffer = tensors
            assert p and g
            text = f"      {c} p = {p.load('i', c)}, g = {'-' * bool(maximize)}{g.load('i', c)};\n"
            if decay:
                text += f"      g += {shrink} * p;\n"
            if buffer:
                moved = "g" if first else f"{keep} * {buffer.load('i', c)} + {rest} * g"
                text += f"      const {c} m = {moved};\n      {buffer.store('i', 'm', c)}\n"
                text += f"      g = {f'g + {keep} * m' if nesterov else 'm'};\n"
            return text + f"      {p.store('i', f'p - {lr} * g', c)}"

        return "", one

    return _plan(call, numbers, step)


@template("adam_step_")
def adam_step(call: Call) -> LaunchPlan:
    """As ``adam_step_``: params, grads, first and second moments and, for amsgrad, their maxima in place."""
    _, numbers, _ = _lists(call, 5)
    _, _, beta1, beta2, decay, eps, amsgrad, maximize, decoupled = call.params[5:]

    def step(kernel: Kernel, c: str) -> Any:
        count, lr = kernel.param(5, c), kernel.param(6, c)
        numbers_of = {
            "b1": 1 - beta1,
            "b2": beta2,
            "c2": 1 - beta2,
            "decay": decay,
            "eps": eps,
            "log1": math.log(beta1) if beta1 > 0 else -math.inf,
            "log2": math.log(beta2) if beta2 > 0 else -math.inf,
        }
        names = {name: kernel.number(value, c) for name, value in numbers_of.items()}
        # 1 - beta ** step, without the loss of digits while step is small
        before = (
            f"  const {c} rate = {lr} / -expm1({count} * {names['log1']});\n"
            f"  const {c} root = sqrt(-expm1({count} * {names['log2']}));"
        )

        def one(tensors: list[Tensor | None]) -> str:
            p, g, mean, square, top = tensors
            assert p and g and mean and square
            text = f"      {c} p = {p.load('i', c)}, g = {'-' * bool(maximize)}{g.load('i', c)};\n"
            if decay and decoupled:
                text += f"      p *= 1 - {lr} * {names['decay']};\n"
            elif decay:
                text += f"      g += {names['decay']} * p;\n"
            text += f"      {c} m = {mean.load('i', c)}, v = {square.load('i', c)};\n"
            text += f"      m += (g - m) * {names['b1']};\n      v = v * {names['b2']} + g * g * {names['c2']};\n"
            text += f"      {mean.store('i', 'm', c)} {square.store('i', 'v', c)}\n"
            if amsgrad:
                assert top
                text += f"      {c} w = {top.load('i', c)};\n      if (v < w) v = w;\n      {top.store('i', 'v', c)}\n"
            moved = f"p - rate * m / (sqrt(v) / root + {names['eps']})"
            return text + f"      {p.store('i', moved, c)}"

        return before, one

    return _plan(call, numbers, step)
