"""Transformations that PyTorch keeps under this name."""

from tesserack.fx.experimental import (
    _control_flow,
    _functionalize,
    const_fold,
    merge_matmul,
    meta_tracer,
    normalize,
    optimization,
    proxy_tensor,
    rewriter,
)

__all__ = ["const_fold", "merge_matmul", "meta_tracer", "normalize", "optimization", "proxy_tensor", "rewriter"]

del _control_flow, _functionalize  # which have told control flow and functionalize what they become in a graph
