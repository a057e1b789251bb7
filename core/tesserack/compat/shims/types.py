"""``torch.types``: names for annotations, those included that PyTorch keeps to itself."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from tesserack import Tensor
from tesserack._native import Size
from tesserack._native import device as _device
from tesserack._native import dtype as _dtype
from tesserack._native import layout as _layout
from tesserack._tensor.types import Number

__all__: list[str] = []

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_symint = _int
_size = Size | list[int] | tuple[int, ...]
_dispatchkey = str
_Number = Number | complex
_TensorOrTensorsOrGradEdge = Tensor | Sequence[Tensor]
_TensorOrOptionalTensors = Tensor | Sequence[Tensor | None]

_ = (_device, _dtype, _layout)
