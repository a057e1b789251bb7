"""Running a graph to note what its values are like."""

from __future__ import annotations

from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack.fx.interpreter import Interpreter
from tesserack.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What a tensor is like, without its values."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    formats = (ts.contiguous_format, ts.channels_last, ts.channels_last_3d)
    ranks = {ts.channels_last: 4, ts.channels_last_3d: 5}
    fitting = [f for f in formats if ranks.get(f, result.ndim) == result.ndim and result.is_contiguous(memory_format=f)]
    layout = fitting[0] if fitting and include_contiguity else None
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), layout, False, {})


class ShapeProp(Interpreter):
    """Runs a graph on example inputs and notes at each node, as ``meta["tensor_meta"]``, what its tensors are like.

    >>> import tesserack as ts
    >>> from tesserack.fx import symbolic_trace
    >>> traced = symbolic_trace(lambda x: x.sum(0))
    >>> _ = ShapeProp(traced).propagate(ts.ones(2, 3))
    >>> [tuple(node.meta["tensor_meta"].shape) for node in traced.graph.nodes]
    [(2, 3), (3,), (3,)]
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        """The value of one node, which is noted."""
        result = super().run_node(n)
        found: list[bool] = []

        def describe(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            found.append(True)
            return _extract_tensor_metadata(value)

        described = map_aggregate(result, describe)
        if found:
            n.meta["tensor_meta"] = described
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """The result for these inputs."""
        return self.run(*args)
