"""Operands within the text of a kernel."""

from __future__ import annotations

from tesserack_kernelgen.dtypes import load, store

__all__ = ["Tensor"]


class Tensor:
    """An operand within the text of a kernel: the expression of its address, and its dtype."""

    def __init__(self, pointer: str, dtype: str):
        self.pointer, self.dtype = pointer, dtype

    def load(self, index: str, c: str) -> str:
        """An expression: the element at ``index``, as C type ``c``."""
        return load(self.pointer, index, self.dtype, c)

    def store(self, index: str, value: str, c: str) -> str:
        """A statement that stores ``value``, of C type ``c``."""
        return store(self.pointer, index, self.dtype, value, c)
