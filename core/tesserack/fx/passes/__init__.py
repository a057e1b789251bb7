"""Passes over graphs."""

from tesserack.fx.passes import shape_prop

__all__ = ["shape_prop"]
