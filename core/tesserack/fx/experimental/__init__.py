"""Transformations that PyTorch keeps under this name."""

from tesserack.fx.experimental import optimization

__all__ = ["optimization"]
