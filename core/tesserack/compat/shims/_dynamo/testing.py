"""``torch._dynamo.testing``: compilers that count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack.jit._compile.backends import lookup_backend

__all__ = ["CompileCounter", "CompileCounterWithBackend", "same"]


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


def same(a: Any, b: Any) -> bool:
    """Whether nested tensors are nearly equal."""
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a.allclose(b, atol=1e-4, rtol=1e-4)) if hasattr(a, "allclose") else bool(a == b)
