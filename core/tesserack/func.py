"""Functions of modules and of functions."""

from tesserack.nn.utils.stateless import functional_call

__all__ = ["functional_call"]
