"""What a pass is."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The module after a pass, and whether it was changed."""

    graph_module: Any
    modified: bool


@compatibility(is_backward_compatible=False)
class PassBase(abc.ABC):
    """A pass: a subclass defines :meth:`call`, and may check the module before and after it."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """The pass itself."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raises where the pass does not take the module."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raises where the pass left the module as it must not."""
