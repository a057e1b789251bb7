"""What values of a graph are like, without computing them."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.aten.fake.fake_tensor import FakeTensorMode
from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.interpreter import Interpreter
from tesserack.fx.node import Node

__all__ = ["FakeTensorProp"]


@compatibility(is_backward_compatible=False)
class FakeTensorProp(Interpreter):
    """Runs a graph on fake tensors, and notes each node's as ``meta["val"]``.

    >>> import tesserack as ts
    >>> from tesserack import fx
    >>> traced = fx.symbolic_trace(lambda x: x.sum(0))
    >>> tuple(FakeTensorProp(traced).propagate(ts.ones(2, 3)).shape)
    (3,)
    """

    def __init__(self, module: GraphModule, mode: FakeTensorMode | None = None) -> None:
        super().__init__(module)
        self._mode = mode if mode is not None else FakeTensorMode()

    def run_node(self, n: Node) -> Any:
        """The fake value of one node, which is noted."""
        result = super().run_node(n)
        n.meta["val"] = result
        return result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A parameter or buffer, fake."""
        value = self.fetch_attr(target)
        return self._mode.from_tensor(value) if isinstance(value, Tensor) else value

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a submodule, with its tensors fake."""
        from tesserack.nn.utils.stateless import functional_call

        module = self.fetch_attr(target)
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        fakes = {name: self._mode.from_tensor(x) for name, x in held.items()}
        return functional_call(module, fakes, args, kwargs)

    def propagate(self, *args: Any) -> Any:
        """The fake result for these inputs."""
        return self.propagate_dont_convert_inputs(
            *(self._mode.from_tensor(a) if isinstance(a, Tensor) else a for a in args)
        )

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """The fake result for fake inputs."""
        with self._mode:
            return super().run(*args)
