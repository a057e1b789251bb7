"""``torch._dynamo.testing``: compilers that count, or keep their graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.jit._compile.aot import aot_autograd, make_boxed_func
from tesserack.jit._compile.backends import lookup_backend
from tesserack.jit.compiler import reset

__all__ = [
    "AotEagerAndRecordGraphs",
    "CompileCounter",
    "CompileCounterWithBackend",
    "EagerAndRecordGraphs",
    "rand_strided",
    "reset",
    "same",
]


class CompileCounter:
    """A backend that runs graphs as they are: how many there were, and how many calls in them."""

    def __init__(self) -> None:
        self.clear()

    def __call__(self, gm: Any, example_inputs: Any) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += sum("call" in node.op for node in gm.graph.nodes)
        return gm.forward  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Begin anew."""
        self.frame_count: int = 0
        self.op_count: int = 0


class CompileCounterWithBackend(CompileCounter):
    """One that has another backend run the graphs, which it keeps."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        super().__init__()

    def __call__(self, gm: Any, example_inputs: Any) -> Callable[..., Any]:
        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs)  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Begin anew."""
        super().clear()
        self.graphs: list[Any] = []


class EagerAndRecordGraphs:
    """A backend that runs graphs as they are, and keeps them."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Any) -> Callable[..., Any]:
        self.graphs.append(gm)
        return gm.forward  # type: ignore[no-any-return]


class AotEagerAndRecordGraphs(EagerAndRecordGraphs):
    """One that keeps the graphs of the forward and the backward besides."""

    def __init__(self) -> None:
        super().__init__()
        self.fw_graphs: list[Any] = []
        self.bw_graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Any) -> Callable[..., Any]:
        def keeps(graphs: list[Any]) -> Callable[..., Any]:
            def compiler(graph: Any, inputs: Any) -> Any:
                graphs.append(graph)
                return make_boxed_func(graph.forward)

            return compiler

        self.graphs.append(gm)
        return aot_autograd(keeps(self.fw_graphs), keeps(self.bw_graphs))(gm, example_inputs)


def rand_strided(size: Any, stride: Any, dtype: Any = ts.float32, device: Any = "cpu", extra_size: int = 0) -> Tensor:
    """A tensor of random numbers with these strides."""
    needed = 1 + extra_size + sum((n - 1) * step for n, step in zip(size, stride, strict=True) if 0 not in size)
    if dtype.is_floating_point or dtype.is_complex:
        held = ts.randn(needed, dtype=dtype, device=device)
    else:
        held = ts.randint(0, 2, (needed,), dtype=dtype, device=device)
    return ts.as_strided(held, size, stride)


def same(a: Any, b: Any) -> bool:
    """Whether nested tensors are nearly equal."""
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a.allclose(b, atol=1e-4, rtol=1e-4)) if hasattr(a, "allclose") else bool(a == b)
