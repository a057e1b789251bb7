"""Tensors one after another along a dim: one launch for as many as the arguments of a kernel can name."""

from __future__ import annotations

from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.card import Call
from tesserack_kernelgen.dtypes import ITEMSIZE
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates, merge, offset_text

__all__ = ["cat"]


def cat(call: Call) -> LaunchPlan:
    """``out`` = the inputs, of its dtype, along dim ``params[0]``."""
    dim, start, places = call.params[-1], 0, []
    for k, x in enumerate(call.inputs):
        if x.numel:
            places.append((k, start))
            start += x.shape[dim]
    each = 8 * (4 + 3 * call.outputs[0].ndim)  # bytes of arguments for one input, at most
    at_once = max(min((call.device.max_arguments - 128) // each, 16), 1)
    return LaunchPlan([_group(call, dim, places[k : k + at_once]) for k in range(0, len(places), at_once)])


def _group(call: Call, dim: int, places: list[tuple[int, int]]) -> Launch:
    """Each input has groups of its own; ``ends`` says where the groups of each end."""
    kernel, out = Kernel(call, "cat"), call.outputs[0]
    target = kernel.output(0)
    bits = f"u{8 * ITEMSIZE[target.dtype]}"
    serial = call.device.serial
    group = 1 if serial else call.device.group
    per_group = 4096 if serial else 4 * group
    ends, parts = 0, []
    for k, start in places:
        x: Any = call.inputs[k]
        source = kernel.input(k)
        sizes, (to, given) = merge(x.shape, out.strides, x.strides)
        names = [f"c{d}" for d in range(len(sizes))]
        count, first = kernel.own_index(x.numel), kernel.own_index(ends)
        base = kernel.own_index(start * out.strides[dim])
        ends += -(-x.numel // per_group)
        where = coordinates("i", kernel.indices(sizes), names) if sizes else ""
        parts.append(
            f"if (number < {kernel.own_index(ends)}) {{\n"
            f"    const idx from = (number - {first}) * {per_group};\n"
            f"    const idx to = {count} - from < {per_group} ? {count} : from + {per_group};\n"
            f"    for (idx i = from + LANE(0); i < to; i += {group}) {{\n      {where}\n"
            f"      ((GLOBAL {bits}*)({target.pointer}))[{base} + {offset_text(names, kernel.indices(to))}] =\n"
            f"          ((GLOBAL const {bits}*)({source.pointer}))[{offset_text(names, kernel.indices(given))}];\n"
            "    }\n  }"
        )
    body = "  const idx number = GROUP(0);\n  " + " else ".join(parts)
    return kernel.launch(body, (ends,), (group,))
