"""Modules of graphs that are written on first need."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph import PythonCode
from tesserack.fx.graph_module import GraphModule

__all__ = ["_LazyGraphModule", "_force_skip_lazy_graph_module", "_make_graph_module", "_use_lazy_graph_module"]


class _Chosen(threading.local):
    lazy, never = False, False


_chosen = _Chosen()


@compatibility(is_backward_compatible=False)
class _LazyGraphModule(GraphModule):
    """A module of a graph whose ``forward`` is written when it is called or its text is read.

    >>> from tesserack import fx
    >>> with _use_lazy_graph_module(True):
    ...     traced = fx.symbolic_trace(lambda x: x.sin())
    >>> traced._needs_recompile(), "sin" in traced.code, traced._needs_recompile()
    (True, True, False)
    """

    @classmethod
    def from_graphmodule(cls, gm: GraphModule) -> GraphModule:
        """The module itself where it is lazy, else a lazy one of its graph."""
        return gm if isinstance(gm, _LazyGraphModule) else _LazyGraphModule(gm, gm.graph)

    @staticmethod
    def force_recompile(gm: Any) -> None:
        """Have a lazy module written now; others are left alone."""
        if isinstance(gm, _LazyGraphModule):
            gm.real_recompile()

    @classmethod
    def _needs_recompile(cls) -> bool:
        return cls.forward is cls._lazy_forward

    def real_recompile(self) -> None:
        """Write ``forward`` if the graph was set or changed since."""
        if self._needs_recompile():
            super().recompile()

    def recompile(self) -> PythonCode:  # type: ignore[return]
        """Have ``forward`` written anew on its next use. Returns None."""
        cls: Any = type(self)
        cls.forward = cls._lazy_forward

    def _lazy_forward(self, *args: Any, **kwargs: Any) -> Any:
        self.real_recompile()
        return self.forward(*args, **kwargs)

    forward = _lazy_forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.real_recompile()
        return super().__call__(*args, **kwargs)

    @property
    def code(self) -> str:
        """The source text of ``forward``."""
        self.real_recompile()
        return super().code

    def __str__(self) -> str:
        self.real_recompile()
        return super().__str__()


def _make_graph_module(*args: Any, graph_module_cls: type[GraphModule] | None = None, **kwargs: Any) -> GraphModule:
    chosen = graph_module_cls or (_LazyGraphModule if _chosen.lazy else GraphModule)
    return chosen(*args, **kwargs)


@compatibility(is_backward_compatible=False)
@contextlib.contextmanager
def _use_lazy_graph_module(should_use: bool) -> Iterator[None]:
    """Within it, traced modules are lazy ones."""
    before = _chosen.lazy
    _chosen.lazy = should_use and not _chosen.never
    try:
        yield
    finally:
        _chosen.lazy = before


@compatibility(is_backward_compatible=False)
@contextlib.contextmanager
def _force_skip_lazy_graph_module() -> Iterator[None]:
    """Within it, :func:`_use_lazy_graph_module` changes nothing."""
    before = _chosen.never
    _chosen.never = True
    try:
        yield
    finally:
        _chosen.never = before
