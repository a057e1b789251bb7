"""Functions written in Python, for objects that define ``__torch_function__`` and are no tensors."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

from tesserack._native import Tensor
from tesserack._tensor.overrides import handle_torch_function

__all__ = ["asking", "asks"]

_MODULES = ("torch", "torch.nn.functional", "torch.fft", "torch.linalg", "torch.special", "torch.functional")
_NOT_ASKED = ("is_tensor", "is_storage", "typename")


def asking(module: str, name: str, function: Any) -> Any:
    """The function, which first asks such objects among its arguments, if it is one that computes."""
    if module not in _MODULES or type(function) is not FunctionType or name in _NOT_ASKED:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        asked = [a for a in given if not isinstance(a, (Tensor, type)) and hasattr(type(a), "__torch_function__")]
        return handle_torch_function(call, asked, *args, **kwargs) if asked else function(*args, **kwargs)

    call._asks = True  # type: ignore[attr-defined]
    call.__module__, call.__qualname__ = module, name  # so that it pickles as what it is asked for by
    return call


def asks(function: Any) -> bool:
    """Whether it is a function that :func:`asking` made."""
    return getattr(function, "_asks", False) is True
