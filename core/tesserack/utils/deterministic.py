"""Whether new memory is filled where deterministic results are asked for, by ``fill_uninitialized_memory``.

True at first: under :func:`tesserack.use_deterministic_algorithms`, ``empty`` and its kin and the elements that
``resize_`` adds then hold NaN, or the largest integer of the dtype. False leaves what the memory held.

>>> import tesserack as ts
>>> ts.use_deterministic_algorithms(True)
>>> ts.empty(2), ts.empty(1, dtype=ts.int8)
(tensor([nan, nan]), tensor([127], dtype=tesserack.int8))
>>> ts.use_deterministic_algorithms(False)
"""

from __future__ import annotations

import sys
import types

from tesserack.utils import settings

__all__ = ["fill_uninitialized_memory"]

fill_uninitialized_memory: bool


class _Module(types.ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether new memory is filled."""
        return bool(settings._state["fill"])

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"fill_uninitialized_memory: expected a bool, got {type(mode).__name__}")
        settings._state["fill"] = mode
        settings._tell_kernels()


sys.modules[__name__].__class__ = _Module
