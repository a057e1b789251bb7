"""Passes over graphs."""

from tesserack.fx.passes import operator_support, shape_prop

__all__ = ["operator_support", "shape_prop"]
