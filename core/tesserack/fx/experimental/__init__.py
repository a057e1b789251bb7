"""Transformations that PyTorch keeps under this name."""

from tesserack.fx.experimental import _control_flow, optimization, proxy_tensor

__all__ = ["optimization", "proxy_tensor"]

del _control_flow  # which has told control flow what it becomes in a graph
