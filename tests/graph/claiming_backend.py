"""A backend with a compiler of graphs: NumPy's kernels, and parts that it runs as it was shown them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import tesserack as ts
import tesserack_reference as reference
from tesserack.backends import Operand
from tesserack.backends.compiler import GraphNode, GraphValue, PartGraph

Policy = Callable[[PartGraph], "Iterable[Iterable[GraphNode]]"]


class Seen(SimpleNamespace):
    """An operand of a kernel within a part."""

    handle: Any
    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return int(np.prod(self.shape))

    @property
    def itemsize(self) -> int:
        return reference.DTYPES[self.dtype].itemsize

    @property
    def byte_strides(self) -> tuple[int, ...]:
        return tuple(step * self.itemsize for step in self.strides)


reference.Operand = (Operand, Seen)  # type: ignore[misc, assignment]


class Claiming(reference.Reference):
    """Claims what ``policy`` says, and computes its parts node by node on memory of its own."""

    name, vendor = "claiming", "org.tesserack.tests.claiming"

    def __init__(self) -> None:
        super().__init__()
        self._kernels = dict(reference.backend._kernels)
        self.policy: Policy = lambda graph: []
        self.parts: list[PartGraph] = []
        self.runs = 0
        self.compile: Callable[[PartGraph], Any] = self.interpret

    def claim(self, device: int, graph: PartGraph) -> Any:
        return self.policy(graph)

    def compile_part(self, device: int, part: PartGraph) -> Any:
        self.parts.append(part)
        return self.compile(part)

    def interpret(self, part: PartGraph) -> Any:
        """The part as a function that calls the kernels of its nodes."""

        def run(*, outputs: tuple[Operand, ...], inputs: tuple[Operand, ...]) -> None:
            self.runs += 1
            memory: dict[GraphValue, tuple[Any, int]] = {}
            given = zip((*part.inputs, *part.outputs), (*inputs, *outputs), strict=True)
            for value, operand in given:
                begin = operand.byte_offset - value.offset * reference.DTYPES[value.dtype].itemsize
                memory[value.memory] = operand.handle, begin
            for node in part.nodes:
                self._call(node, part, memory)

        return run

    def _call(self, node: GraphNode, part: PartGraph, memory: dict[GraphValue, tuple[Any, int]]) -> None:
        inputs = [self._operand(x, part, memory) if isinstance(x, GraphValue) else x for x in node.inputs]
        outputs = [self._operand(x, part, memory) for x in node.outputs]
        if node.op == "copy_within":
            reference.view(outputs[0])[...] = reference.view(inputs[0])
            return
        lists = [p for p in node.params if isinstance(p, range)]
        params = [[inputs[k] for k in p] if isinstance(p, range) else p for p in node.params]
        alone = [x for k, x in enumerate(inputs) if not any(k in p for p in lists)]
        function, _, fields, *_ = self._kernels[node.op]
        told = {"outputs": tuple(outputs), "inputs": tuple(alone), "params": tuple(params), "op": node.op}
        told |= {name: getattr(node, name) for name in ("opcode", "compute_dtype", "program")}
        spread = [*outputs] if "outputs" not in fields else []
        spread += alone if "inputs" not in fields else []
        spread += params if "params" not in fields else []
        assert function(*spread, **{name: told[name] for name in fields}) is None

    def _operand(self, value: GraphValue, part: PartGraph, memory: dict[GraphValue, tuple[Any, int]]) -> Seen:
        item = reference.DTYPES[value.dtype].itemsize
        if value.memory not in memory:  # a temporary: room for all that is seen of it
            seen = [v for v in part.values if v.memory is value.memory]
            low = min(v.offset * reference.DTYPES[v.dtype].itemsize for v in seen)
            high = max((v.offset + reach(v) + 1) * reference.DTYPES[v.dtype].itemsize for v in seen)
            memory[value.memory] = np.full(high - low, 0xCD, np.uint8), -low
        handle, begin = memory[value.memory]
        return Seen(
            handle=handle,
            byte_offset=begin + value.offset * item,
            shape=value.shape,
            strides=value.strides,
            dtype=value.dtype,
            is_contiguous=True,
        )


def reach(value: GraphValue) -> int:
    """Elements from a value's first to its last."""
    return sum((size - 1) * step for size, step in zip(value.shape, value.strides, strict=True) if step > 0)


def registered() -> Claiming:
    """The backend, once a process."""
    found = ts._native._python_backend("claiming") if "claiming" in _made else None
    if found is None:
        found = Claiming()
        ts._native._register_python_backend(found, "a test")
        _made.append("claiming")
    return found  # type: ignore[no-any-return]


_made: list[str] = []
