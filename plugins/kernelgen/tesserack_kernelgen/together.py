"""Small pointwise calls that need nothing of one another, in one launch: a group computes each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tesserack.backends import LaunchPlan
from tesserack.backends.compiler import GraphNode, GraphValue, PartGraph

from tesserack_kernelgen.call import Call, Part
from tesserack_kernelgen.dtypes import name_of, register
from tesserack_kernelgen.emit import DIVISIONS, program_helpers, program_text
from tesserack_kernelgen.fused import Given
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates, merge, offset_text

if TYPE_CHECKING:
    from tesserack_kernelgen.card import Card

__all__ = ["MOST", "SMALL", "together"]

SMALL = 4096  # elements of an operand
MOST = 12  # calls of one launch


def together(card: Card, device: int, part: PartGraph, operands: tuple[Any, ...]) -> LaunchPlan:
    """The launch. ``operands`` are those of the part, outputs and inputs."""
    values = [*part.outputs, *part.inputs]
    numbers = {value: k for k, value in reversed([*enumerate(values)]) for value in [value]}
    slots = tuple(Given(k) for k in range(len(operands)))
    call = Call(card, card.device(device), "pointwise", None, None, operands, (), (), None, part=Part(slots, operands))
    kernel = Kernel(call, "together")
    group = 1 if call.device.serial else call.device.group
    texts, helpers = [], dict[str, str]()
    for k, node in enumerate(part.nodes):
        texts.append(f"  if (GROUP(0) == {k}) {{\n{_one(kernel, node, numbers, group)}\n  }}")
        helpers.update(program_helpers(node.program, register(name_of(node.compute_dtype))))
    return LaunchPlan([kernel.launch("\n".join(texts), (len(part.nodes),), (group,), "\n".join(helpers.values()))])


def _one(kernel: Kernel, node: GraphNode, numbers: dict[GraphValue, int], group: int) -> str:
    c = register(name_of(node.compute_dtype))
    out = node.outputs[0]
    seen = [*node.outputs, *node.reads()]
    sizes, strides = merge(out.shape, *(x.strides for x in seen))
    names = [f"c{d}" for d in range(len(sizes))]
    places = [offset_text(names, kernel.own_indices(steps)) for steps in strides]
    tensors = [kernel.output(numbers[x]) for x in seen]
    made = len(node.outputs)
    loads = iter(zip(tensors[made:], places[made:], strict=True))
    given = []
    for x in node.inputs:
        if isinstance(x, GraphValue):
            tensor, at = next(loads)
            given.append(tensor.load(at, c))
        else:
            given.append(kernel.number(x, c))
    kernel.site = " ".join(("pointwise", *(name for name, *_ in node.program.instructions if name in DIVISIONS)))
    lines, values, _ = program_text(node.program, given, c, lambda divisor: kernel.fault("division", "0"))
    kept = [f"const {c} v{k} = {value};" for k, value in enumerate(values)]
    stores = [x.store(at, f"v{k}", c) for k, (x, at) in enumerate(zip(tensors[:made], places, strict=False))]
    count = kernel.own_index(math.prod(out.shape))
    return "\n".join(
        (
            f"    for (idx i = LANE(0); i < {count}; i += {group}) {{",
            coordinates("i", kernel.own_indices(sizes), names),
            *lines,
            *kept,
            *stores,
            "    }",
        )
    )
