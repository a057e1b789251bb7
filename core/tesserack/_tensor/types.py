"""Names for annotations: ``tesserack.types.Number`` and its like."""

from __future__ import annotations

from collections.abc import Sequence

from tesserack._native import Generator as Generator
from tesserack._native import Size as Size
from tesserack._native import Tensor as Tensor
from tesserack._native import device as device
from tesserack._native import dtype as dtype
from tesserack._native import layout as layout
from tesserack._native import memory_format as memory_format

__all__ = ["Device", "Generator", "Number", "Size", "Tensor", "device", "dtype", "layout", "memory_format"]

Number = int | float | bool
Device = device | str | None
_TensorOrTensors = Tensor | Sequence[Tensor]
