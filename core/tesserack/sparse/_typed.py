"""The sparse tensor types of one dtype each, which older programs construct: ``torch.sparse.FloatTensor``."""

from __future__ import annotations

from typing import Any

from tesserack import _native
from tesserack._native import Size, Tensor

__all__ = [
    "BFloat16Tensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]


class _TypedMeta(type):
    dtype: _native.dtype

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        from tesserack.sparse._construct import sparse_coo_tensor

        if len(args) < 2 or not isinstance(args[1], Tensor):
            if len(args) == 1 and isinstance(args[0], (tuple, list)) and not isinstance(args[0], Size):
                raise TypeError(f"torch.sparse.{cls.__name__}: expected sizes, got {args[0]}; try a torch.Size, "
                                "sparse_coo_tensor() or .to_sparse() of a dense tensor")  # fmt: skip
            size = args[0] if len(args) == 1 and isinstance(args[0], Size) else args or (0,)
            return sparse_coo_tensor(tuple(size), dtype=cls.dtype, device=device)
        return sparse_coo_tensor(*args, device=device)  # in the dtype of the values, whatever the name says

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.is_sparse and instance.dtype == cls.dtype


def _typed(name: str, dtype: _native.dtype) -> Any:
    text = f"Sparse tensors (coo) of {dtype}; prefer ``sparse_coo_tensor(..., dtype=...)`` and ``x.dtype``."
    return _TypedMeta(name, (), {"dtype": dtype, "__doc__": text, "__module__": "tesserack.sparse"})


FloatTensor = _typed("FloatTensor", _native.float32)
DoubleTensor = _typed("DoubleTensor", _native.float64)
HalfTensor = _typed("HalfTensor", _native.float16)
BFloat16Tensor = _typed("BFloat16Tensor", _native.bfloat16)
ByteTensor = _typed("ByteTensor", _native.uint8)
CharTensor = _typed("CharTensor", _native.int8)
ShortTensor = _typed("ShortTensor", _native.int16)
IntTensor = _typed("IntTensor", _native.int32)
LongTensor = _typed("LongTensor", _native.int64)
NAMES = tuple(__all__)
