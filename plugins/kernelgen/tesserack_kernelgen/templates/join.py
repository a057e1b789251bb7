"""Tensors one after another along a dim: one launch for as many as the arguments of a kernel can name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates, merge, offset_text
from tesserack_kernelgen.templates._registry import template

__all__ = ["cat"]


@template("cat")
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
        to_names, from_names = kernel.indices(to), kernel.indices(given)
        words = f"(GLOBAL {bits}*)({target.pointer})", f"(GLOBAL const {bits}*)({source.pointer})"
        move = _lines if serial and sizes else _elements
        parts.append(
            f"if (number < {kernel.own_index(ends)}) {{\n"
            f"    const idx from = (number - {first}) * {per_group};\n"
            f"    const idx to = {count} - from < {per_group} ? {count} : from + {per_group};\n"
            f"    {move(words, base, kernel.indices(sizes), names, to_names, from_names, group)}\n  }}"
        )
    body = "  const idx number = GROUP(0);\n  " + " else ".join(parts)
    return kernel.launch(body, (ends,), (group,))


_Names = Sequence[str]


def _elements(words: _Names, base: str, sizes: _Names, names: _Names, to: _Names, given: _Names, group: int) -> str:
    """Items of a group take elements in turn."""
    return (
        f"for (idx i = from + LANE(0); i < to; i += {group}) {{\n      {coordinates('i', sizes, names)}\n"
        f"      ({words[0]})[{base} + {offset_text(names, to)}] = ({words[1]})[{offset_text(names, given)}];\n    }}"
    )


def _lines(words: _Names, base: str, sizes: _Names, names: _Names, to: _Names, given: _Names, group: int) -> str:
    """Line by line, as far as these are of the group: a loop that compilers turn into vectors."""
    line, last = sizes[-1], names[-1]
    ahead = [offset_text([*names[:-1], f"({last} + e)"], steps) for steps in (to, given)]
    return (
        f"for (idx i = from; i < to;) {{\n      {coordinates('i', sizes, names)}\n"
        f"      const idx many = {line} - {last} < to - i ? {line} - {last} : to - i;\n"
        f"      for (idx e = 0; e < many; ++e)\n"
        f"        ({words[0]})[{base} + {ahead[0]}] = ({words[1]})[{ahead[1]}];\n"
        f"      i += many;\n    }}"
    )
