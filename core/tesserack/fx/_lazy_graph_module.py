"""Modules of graphs that PyTorch writes on first need: here they are written when they are made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tesserack.fx.graph_module import GraphModule

__all__ = ["_LazyGraphModule", "_force_skip_lazy_graph_module", "_make_graph_module", "_use_lazy_graph_module"]

_LazyGraphModule = GraphModule


def _make_graph_module(*args: Any, graph_module_cls: type[GraphModule] | None = None, **kwargs: Any) -> GraphModule:
    return (graph_module_cls or GraphModule)(*args, **kwargs)


@contextlib.contextmanager
def _use_lazy_graph_module(should_use: bool) -> Iterator[None]:
    """A context that changes nothing."""
    yield


@contextlib.contextmanager
def _force_skip_lazy_graph_module() -> Iterator[None]:
    """A context that changes nothing."""
    yield
