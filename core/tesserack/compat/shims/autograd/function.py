"""``torch.autograd.function``: the base of functions that write to their argument, from before ``mark_dirty``."""

from __future__ import annotations

from tesserack.autograd import Function

__all__ = ["InplaceFunction"]


class InplaceFunction(Function):
    """A :class:`Function` with a flag."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
