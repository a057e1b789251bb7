"""Running a graph to note what its values are like."""

from __future__ import annotations

import contextlib
import traceback
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack.fx._compatibility import compatibility
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


@compatibility(is_backward_compatible=False)
def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    plain = result.layout is ts.strided
    formats = (ts.contiguous_format, ts.channels_last, ts.channels_last_3d)
    ranks = {ts.channels_last: 4, ts.channels_last_3d: 5}
    fitting = [f for f in formats if plain and include_contiguity and ranks.get(f, result.ndim) == result.ndim
               and result.is_contiguous(memory_format=f)]  # fmt: skip
    strides = result.stride() if plain else ()
    layout = fitting[0] if fitting else None
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, strides, layout, False, {})


@compatibility(is_backward_compatible=True)
class ShapeProp(Interpreter):
    """Runs a graph on example inputs and notes at each node, as ``meta["tensor_meta"]``, what its tensors are like.

    ``fake_mode`` is a context within which the nodes run. ``RuntimeError`` says which node failed.

    >>> import tesserack as ts
    >>> from tesserack.fx import symbolic_trace
    >>> traced = symbolic_trace(lambda x: x.sum(0))
    >>> _ = ShapeProp(traced).propagate(ts.ones(2, 3))
    >>> [tuple(node.meta["tensor_meta"].shape) for node in traced.graph.nodes]
    [(2, 3), (3,), (3,)]
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.fake_mode = fake_mode
        self.real_module = self.module

    def run_node(self, n: Node) -> Any:
        """The value of one node, which is noted."""
        try:
            with self.fake_mode if self.fake_mode is not None else contextlib.nullcontext():
                result = super().run_node(n)
        except Exception as error:
            traceback.print_exc()
            raise RuntimeError(f"ShapeProp error for: node={n.format_node()} with meta={n.meta}") from error
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
        return super().run(*args)
