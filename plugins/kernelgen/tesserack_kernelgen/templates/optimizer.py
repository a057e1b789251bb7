"""Steps of SGD and Adam: one kernel for a group of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack import _native
from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import accumulator, name_of
from tesserack_kernelgen.formula import Formula
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


def _by_rule(call: Call, rule: str, lists: int, values: dict[str, Any]) -> LaunchPlan:
    """The kernel of a step that the core states as lines; ``values`` of its numbers, or how they are passed."""
    names, _, lines = rule.partition(":")
    states = names.split(",")[1].split()
    _, numbers, _ = _lists(call, lists)

    def step(kernel: Kernel, c: str) -> Any:
        formula = Formula(kernel, c, {name: v(kernel, c) if callable(v) else v for name, v in values.items()})
        parts = [line.partition("=")[::2] for line in lines.split(";")]
        of_tensors = {"param", "grad", *states}
        before, inner, results = [], [], []
        for name, expression in parts:
            if not expression:  # a result
                results.append(name)
            elif formula.mentions(expression, of_tensors):
                of_tensors.add(name)
                inner.append((name, expression))
            elif isinstance(value := formula.of(expression), str):
                before.append(f"  const {c} {name} = {value};")
                formula.names[name] = name
            else:
                formula.names[name] = value
        formula.names.update({name: name for name in of_tensors})

        def one(tensors: list[Tensor | None]) -> str:
            p, g, *kept = [tensor for tensor in tensors if tensor]
            loads = zip(("param", "grad", *states), (p, g, *kept), strict=True)
            text = "".join(f"      const {c} {name} = {tensor.load('i', c)};\n" for name, tensor in loads)
            text += "".join(f"      const {c} {name} = {formula.text(e)};\n" for name, e in inner)
            stores = zip((p, *kept), results, strict=True)
            return text + " ".join(f"      {tensor.store('i', formula.text(e), c)}" for tensor, e in stores)

        return "\n".join(before), one

    return _plan(call, numbers, step)


def _param(k: int) -> Any:
    """A number that changes from call to call."""
    return lambda kernel, c: kernel.param(k, c)


@template("sgd_step_")
def sgd_step(call: Call) -> LaunchPlan:
    """As ``sgd_step_``: params, grads and momentum buffers in place."""
    _, momentum, dampening, decay, nesterov, maximize, first = call.params[3:]
    rule = _native._sgd_rule(momentum != 0, nesterov, first, decay != 0)
    values = {"lr": _param(3), "momentum": momentum, "dampening": dampening, "weight_decay": decay}
    return _by_rule(call, rule, 3, {**values, "maximize": float(maximize)})


@template("adam_step_")
def adam_step(call: Call) -> LaunchPlan:
    """As ``adam_step_``: params, grads, first and second moments and, for amsgrad, their maxima in place."""
    _, _, beta1, beta2, decay, eps, amsgrad, maximize, decoupled = call.params[5:]
    values = {"step": _param(5), "lr": _param(6), "beta1": beta1, "beta2": beta2, "weight_decay": decay, "eps": eps}
    values["maximize"] = float(maximize)
    return _by_rule(call, _native._adam_rule(amsgrad, decay != 0, decoupled, beta1 > 0.5), 5, values)
