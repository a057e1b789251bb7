"""Passes over graphs."""

from tesserack.fx.passes import (
    graph_drawer,
    graph_manipulation,
    net_min_base,
    operator_support,
    param_fetch,
    pass_manager,
    shape_prop,
    split_module,
    split_utils,
    splitter_base,
    tools_common,
)

__all__ = [
    "graph_drawer",
    "graph_manipulation",
    "net_min_base",
    "operator_support",
    "param_fetch",
    "pass_manager",
    "shape_prop",
    "split_module",
    "split_utils",
    "splitter_base",
    "tools_common",
]
