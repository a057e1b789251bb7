"""``torch.cuda.FloatTensor`` and its like."""

from __future__ import annotations

from typing import Any

from tesserack._native import Tensor
from tesserack._tensor import typed as _typed

__all__ = [*_typed.__all__]


class _OnCard(_typed._TypedMeta):
    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        return super().__call__(*args, device=device or "cuda")


for _name in __all__:
    _kind: Any = getattr(_typed, _name)
    globals()[_name] = _OnCard(_name, (), {"dtype": _kind.dtype, "device": "cuda", "__module__": "torch.cuda"})
