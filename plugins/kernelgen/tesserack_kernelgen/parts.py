"""Parts of graphs as one kernel: a template with the pointwise calls before and behind it, and small calls together.

``Card.install`` gives a backend the two methods by which the core asks, see :mod:`tesserack.backends.compiler`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tesserack.backends import LaunchPlan
from tesserack.backends.compiler import GraphNode, GraphValue, PartGraph

from tesserack_kernelgen.call import Call, Part
from tesserack_kernelgen.dtypes import name_of
from tesserack_kernelgen.fused import Computed, Dropped, Finished, Given, Slot, Unfused
from tesserack_kernelgen.templates._registry import FINISHES, FUSES, TEMPLATES
from tesserack_kernelgen.together import MOST, SMALL, together

if TYPE_CHECKING:
    from tesserack_kernelgen.card import Card

__all__ = ["claim", "compile_part"]

_COMPUTED = ("float32", "float64")
_INSTRUCTIONS = 16  # of a program that is computed again wherever its result is read


@dataclass
class Outline:
    """A value between two nodes, as templates look at operands."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    byte_offset: int = 0

    @property
    def ndim(self) -> int:
        """How many dims it has."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


def claim(graph: PartGraph, fuses: Callable[[str], bool]) -> list[list[GraphNode]]:
    """What is worth a kernel together. ``fuses``: whether a node's kernel is a template that can be fused."""
    taken: set[int] = set()
    parts = []
    for node in graph.nodes:
        if node.index in taken or not fuses(node.op) or not _is_computed(node.outputs[0]):
            continue
        part = [*_before(graph, node, taken), node, *_behind(graph, node, taken)]
        if len(part) > 1:
            parts.append(part)
            taken.update(each.index for each in part)
    small = [node for node in graph.nodes if node.index not in taken and _is_small(node)]
    return [*parts, *_independent(small)]


def _is_computed(value: GraphValue) -> bool:
    return name_of(value.dtype) in _COMPUTED


def _dense(value: GraphValue) -> bool:
    steps = sorted(zip(value.strides, value.shape, strict=True))
    expected = 1
    for step, size in steps:
        if size == 1:
            continue
        if step != expected:
            return False
        expected *= size
    return True


def _is_program(node: GraphNode) -> bool:
    """Whether it computes one value of others that lie alike, element by element."""
    if node.op != "pointwise" or len(node.outputs) != 1 or len(node.program.instructions) > _INSTRUCTIONS:
        return False
    out = node.outputs[0]
    alike = all(x.shape == out.shape and x.strides == out.strides for x in node.reads())
    return _is_computed(out) and node.compute_dtype is out.dtype and alike and _dense(out)


def _before(graph: PartGraph, node: GraphNode, taken: set[int]) -> Iterator[GraphNode]:
    """Programs whose results nobody else reads."""
    for k, value in enumerate(node.inputs):
        if not isinstance(value, GraphValue) or not _is_computed(value) or graph.is_seen(value):
            continue
        makers = graph.makers(value)
        if len(makers) != 1 or graph.users(value) != [node] or makers[0].index in taken:
            continue
        maker = makers[0]
        once = sum(isinstance(x, GraphValue) and x.memory is value.memory for x in node.inputs) == 1
        same = maker.outputs[0].offset == value.offset and math.prod(maker.outputs[0].shape) == math.prod(value.shape)
        same = same and maker.compute_dtype is value.dtype
        if once and same and k in FUSES[node.op] and not maker.writes and _is_program(maker):
            yield maker


def _behind(graph: PartGraph, node: GraphNode, taken: set[int]) -> Iterator[GraphNode]:
    """The program of its first result that is all that becomes of it, be it in its place."""
    value = node.outputs[0]
    users = graph.users(value) if node.op in FINISHES else []
    if not users or users[0].index in taken or not _is_program(users[0]):
        return
    user = users[0]
    own = user.outputs[0].memory is value.memory
    # Others of its results are not there yet when the first is stored, what it writes may be there already.
    apart = {x.memory for x in (*node.outputs[1:], *node.written)}.isdisjoint(x.memory for x in user.reads())
    alone = apart and user.compute_dtype is value.dtype and graph.makers(value) == ([node, user] if own else [node])
    gone = own or (len(users) == 1 and not user.writes and not graph.is_seen(value))
    read = [x for x in user.reads() if x.memory is value.memory]
    whole = len(read) == 1 and read[0].offset == value.offset and math.prod(read[0].shape) == math.prod(value.shape)
    if alone and gone and whole and _dense(value):
        yield user


def _is_small(node: GraphNode) -> bool:
    """Whether a launch takes longer than what it does."""
    values = [*node.reads(), *node.outputs]
    return node.op == "pointwise" and all(math.prod(v.shape) <= SMALL for v in values)


def _independent(nodes: list[GraphNode]) -> Iterator[list[GraphNode]]:
    """Lists of nodes none of which needs another."""
    part: list[GraphNode] = []
    written: set[GraphValue] = set()
    read: set[GraphValue] = set()
    for node in nodes:
        reads, writes = {x.memory for x in node.reads()}, {x.memory for x in node.outputs}
        if len(part) == MOST or written & (reads | writes) or read & writes:
            if len(part) > 1:
                yield part
            part, written, read = [], set(), set()
        part.append(node)
        written |= writes
        read |= reads
    if len(part) > 1:
        yield part


# --- kernels --------------------------------------------------------------------------------------------------------


def compile_part(card: Card, device: int, part: PartGraph) -> Any:
    """The part as a kernel of a backend; NotImplemented where its template needs what a part does not have."""
    small = [node for node in part.nodes if node.op == "pointwise"]
    if len(part.nodes) == 1 or (len(small) == len(part.nodes) and not all(map(_is_small, small))):
        return NotImplemented  # the core has cut it to what has a kernel of its own
    make = together if len(small) == len(part.nodes) else _fused
    operands = tuple(Outline(v.shape, v.strides, v.dtype) for v in (*part.outputs, *part.inputs))
    try:
        if make(card, device, part, operands) is NotImplemented:
            return NotImplemented
    except Unfused:
        return NotImplemented

    def run(*, outputs: tuple[Any, ...], inputs: tuple[Any, ...]) -> LaunchPlan:
        card.statistics.plans += 1
        return make(card, device, part, (*outputs, *inputs))

    return run


def _fused(card: Card, device: int, part: PartGraph, operands: tuple[Any, ...]) -> Any:
    (anchor,) = (node for node in part.nodes if node.op != "pointwise")
    numbers = _Numbers(part)
    made = {node.outputs[0].memory: node for node in part.nodes if node.index < anchor.index}
    behind = next((node for node in part.nodes if node.index > anchor.index), None)
    slots: list[Slot] = []
    for k, value in enumerate(anchor.outputs):
        slots.append(numbers.finished(value, behind) if k == 0 and behind else numbers.result(value))
    for value in anchor.inputs:
        if not isinstance(value, GraphValue):
            slots.append(Given(-1))
        elif value.memory in made:
            slots.append(numbers.computed(made[value.memory]))
        else:
            slots.append(numbers.given(value))
    seen = [_operand(x, slot, operands) for x, slot in zip((*anchor.outputs, *anchor.inputs), slots, strict=True)]
    n = len(anchor.outputs)
    compute = None if anchor.compute_dtype is None else name_of(anchor.compute_dtype)
    said = anchor.epilogue, anchor.deterministic, anchor.precision, anchor.prologue
    call = Call(
        card, card.device(device), anchor.op, anchor.opcode, compute, tuple(seen[:n]), tuple(seen[n:]), anchor.params,
        anchor.program, *said, Part(tuple(slots), operands),
    )  # fmt: skip
    return TEMPLATES[anchor.op](call)


def _operand(value: Any, slot: Slot, operands: tuple[Any, ...]) -> Any:
    """What a template sees of an operand: of one without memory how it would lie."""
    if not isinstance(value, GraphValue):
        return value
    return operands[slot.number] if isinstance(slot, Given) else Outline(value.shape, value.strides, value.dtype)


class _Numbers:
    """Operands of the part by value."""

    def __init__(self, part: PartGraph) -> None:
        values = [*part.outputs, *part.inputs]
        self._numbers = {value: k for k, value in reversed([*enumerate(values)]) for value in [value]}

    def given(self, value: GraphValue) -> Given:
        """An operand that has memory."""
        if value not in self._numbers:
            raise Unfused
        return Given(self._numbers[value])

    def result(self, value: GraphValue) -> Given | Dropped:
        """An output of the template."""
        return Given(self._numbers[value]) if value in self._numbers else Dropped()

    def _args(self, node: GraphNode, value: GraphValue | None = None) -> tuple[Given | float, ...]:
        return tuple(
            Given(-1)
            if isinstance(x, GraphValue) and value is not None and x.memory is value.memory
            else self.given(x)
            if isinstance(x, GraphValue)
            else x
            for x in node.inputs
        )

    def computed(self, node: GraphNode) -> Computed:
        """The result of a program."""
        return Computed(node.program, self._args(node))

    def finished(self, value: GraphValue, node: GraphNode) -> Finished:
        """A result that a program goes on with."""
        args = self._args(node, value)
        at = next(k for k, x in enumerate(node.inputs) if isinstance(x, GraphValue) and x.memory is value.memory)
        return Finished(node.program, (*args[:at], *args[at + 1 :]), at, self.given(node.outputs[0]))
