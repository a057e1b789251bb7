"""Graphs that a device compiles itself: what a backend written in Python is shown, and what it answers.

Where a program is captured (``tesserack.compile``, ``jit.trace``), the core knows the kernels that a run calls, and on
which memory. A backend with ``claim`` and ``compile_part`` is shown them before they run::

    class Acme(Backend):
        def claim(self, device, graph):
            # Lists of nodes, each a part. What is left stays with the core.
            return [[node for node in graph.nodes if node.op == "pointwise"]]

        def compile_part(self, device, part):
            def run(*, outputs, inputs):  # as a kernel: it computes, or returns a LaunchPlan
                ...
            return run

Nothing is claimed by None or NotImplemented. A part is a graph of its own. Its function gets the memory of
``part.outputs`` and ``part.inputs``, in their order, with the keyword-only fields of
:meth:`tesserack.backends.Backend.kernel`, and may not decline; what lies between has none. Nodes that could not run
together, since something between them needs one and is needed by another, come as several parts. The results are held
to what the kernels would give, within the conformance kit's tolerance.

A compiler that takes its time keeps what it made: ``serialize_part(device, function) -> bytes`` writes down a function
that ``compile_part`` returned, ``deserialize_part(device, data) -> function`` makes it again in another process. The
core keeps the bytes among compiled kernels (``TESSERACK_KERNEL_CACHE``), for the same part, backend, version and name
of the device. Either gives NotImplemented for what it does not do, such as data of another driver: compiled anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

__all__ = ["GraphNode", "GraphValue", "PartGraph", "groups_of"]

_INPUT, _OUTPUT = 1, 2
_WRITES = 1


@dataclass(eq=False)
class GraphValue:
    """Memory, seen in one way.

    Attributes:
        index: its place in ``graph.values``.
        dtype: of its elements.
        shape: sizes.
        strides: in elements.
        alias_of: the first value of the same memory; None where this one is.
        offset: from where that begins, in elements of this one's dtype.
        is_input: whether it is there before the graph.
        is_output: whether it is needed after the graph.
    """

    index: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alias_of: GraphValue | None = field(repr=False)
    offset: int
    is_input: bool
    is_output: bool

    @property
    def memory(self) -> GraphValue:
        """The first value of its memory."""
        return self.alias_of or self


@dataclass(eq=False)
class GraphNode:
    """A kernel's call.

    Attributes:
        index: its place in ``graph.nodes``.
        op: the kernel's name; "copy_within" for a copy of bytes.
        inputs: values, numbers, and None for what is absent.
        outputs: values.
        params: as the kernel gets them; for a list of tensors the range of ``inputs`` that they are.
        writes: whether it writes what was there before.
        written: its inputs that it writes.
        opcode, compute_dtype, program, prologue, epilogue, deterministic, precision: as the kernel gets them.
    """

    index: int
    op: str
    inputs: tuple[Any, ...]
    outputs: tuple[GraphValue, ...]
    writes: bool
    params: tuple[Any, ...] = ()
    opcode: Any = None
    compute_dtype: Any = None
    program: Any = None
    prologue: Any = None
    epilogue: Any = None
    deterministic: bool = False
    precision: str = "highest"
    written: tuple[GraphValue, ...] = ()

    def reads(self) -> Iterator[GraphValue]:
        """Its inputs that are values."""
        return (value for value in self.inputs if isinstance(value, GraphValue))


@dataclass(eq=False)
class PartGraph:
    """Kernel calls in an order in which they may run.

    Attributes:
        values: all of them.
        nodes: the calls.
        inputs: values that are there before; what is also written stands among the outputs, too.
        outputs: values that are needed afterwards.
    """

    values: list[GraphValue]
    nodes: list[GraphNode]
    inputs: list[GraphValue]
    outputs: list[GraphValue]

    @classmethod
    def of(cls, values: Any, nodes: Any, inputs: Any, outputs: Any) -> PartGraph:
        """From what the core tells."""
        made: list[GraphValue] = []
        for dtype, shape, strides, alias_of, offset, flags in values:
            alias = made[alias_of] if alias_of >= 0 else None
            made.append(
                GraphValue(len(made), dtype, shape, strides, alias, offset, bool(flags & _INPUT), bool(flags & _OUTPUT))
            )
        calls = [_node(k, made, *told) for k, told in enumerate(nodes)]
        return cls(made, calls, [made[v] for v in inputs], [made[v] for v in outputs])

    def users(self, value: GraphValue) -> list[GraphNode]:
        """The nodes that read memory of a value."""
        return self._users.get(value.memory, [])

    def makers(self, value: GraphValue) -> list[GraphNode]:
        """The nodes that write memory of a value."""
        return self._makers.get(value.memory, [])

    def is_seen(self, value: GraphValue) -> bool:
        """Whether memory of a value is from before the graph, or needed after it."""
        return value.memory in self._seen

    @cached_property
    def _users(self) -> dict[GraphValue, list[GraphNode]]:
        return _by_memory((node, node.reads()) for node in self.nodes)

    @cached_property
    def _makers(self) -> dict[GraphValue, list[GraphNode]]:
        return _by_memory((node, (*node.outputs, *node.written)) for node in self.nodes)

    @cached_property
    def _seen(self) -> set[GraphValue]:
        return {value.memory for value in self.values if value.is_input or value.is_output}


def _by_memory(touched: Iterable[tuple[GraphNode, Iterable[GraphValue]]]) -> dict[GraphValue, list[GraphNode]]:
    """The nodes in their order, by the memory that they touch."""
    found: dict[GraphValue, list[GraphNode]] = {}
    for node, values in touched:
        for memory in dict.fromkeys(value.memory for value in values):
            found.setdefault(memory, []).append(node)
    return found


def _node(k: int, values: list[GraphValue], op: str, inputs: Any, outputs: Any, effects: int, call: Any) -> GraphNode:
    made = tuple(values[v] for v in outputs)
    writes = bool(effects & _WRITES)
    if call is None:
        return GraphNode(k, op, tuple(values[v] for v in inputs), made, writes)
    opcode, compute, program, prologue, epilogue, deterministic, precision, operands, params = call
    mutable = [values[v] for v, operand in zip(inputs, operands, strict=True) if getattr(operand, "is_mutable", False)]
    read = tuple(values[v] if v >= 0 else operand for v, operand in zip(inputs, operands, strict=True))
    return GraphNode(
        k, op, read, made, writes, params, opcode, compute, program, prologue, epilogue, deterministic, precision,
        tuple(mutable),
    )  # fmt: skip


def groups_of(parts: Iterable[Iterable[GraphNode]] | None, graph: PartGraph) -> list[int]:
    """For each node of a graph the number of its part, from 1 on, or 0.

    Raises:
        TypeError: for something that is no node of the graph.
        ValueError: for a node in two parts.
    """
    groups = [0] * len(graph.nodes)
    told = () if parts is None or parts is NotImplemented else parts
    for number, part in enumerate(told, 1):
        if isinstance(part, GraphNode):
            raise TypeError(f"claim: expected lists of nodes, one for each part, got the node {part.op!r} as one")
        for node in part:
            if not (isinstance(node, GraphNode) and graph.nodes[node.index : node.index + 1] == [node]):
                raise TypeError(f"claim: expected lists of nodes of the graph, got {node!r} in one")
            if groups[node.index]:
                raise ValueError(f"claim: expected each node in one part, got node {node.index}, {node.op}, in two")
            groups[node.index] = number
    return groups
