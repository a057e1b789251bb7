"""Functions written in Python, for objects that define ``__torch_function__`` and are no tensors."""

from __future__ import annotations

import functools
from types import CodeType, FunctionType
from typing import Any

from tesserack._native import Tensor
from tesserack._tensor.overrides import handle_torch_function

__all__ = ["asking", "asks", "plain"]

_MODULES = ("torch", "torch.nn.functional", "torch.fft", "torch.linalg", "torch.special", "torch.functional")
# What PyTorch asks nobody about: files, programs, checks and settings.
_NOT_ASKED = {
    *("is_tensor", "is_storage", "typename", "save", "load", "compile", "vmap", "cond", "while_loop", "seed"),
    *("broadcast_shapes", "ops", "overrides", "handle_torch_function", "has_torch_function", "_disable_dynamo"),
    *("has_torch_function_unary", "has_torch_function_variadic", "_check", "_check_index", "_check_is_size"),
    *("_check_not_implemented", "_check_tensor_all", "_check_tensor_all_with", "_check_type", "_check_value"),
    *("_check_with", "manual_seed"),
}
_codes: set[CodeType] = set()  # of what asks, which is one
_SETTINGS = ("set_", "get_", "use_", "is_autocast", "are_")


def asking(module: str, name: str, function: Any) -> Any:
    """The function, which first asks such objects among its arguments, if it is one that computes."""
    if module not in _MODULES or type(function) is not FunctionType or name in _NOT_ASKED or asks(function):
        return function
    if module == "torch" and name.startswith(_SETTINGS) and name != "get_device":
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        asked = [a for a in given if not isinstance(a, (Tensor, type)) and hasattr(type(a), "__torch_function__")]
        return handle_torch_function(call, asked, *args, **kwargs) if asked else function(*args, **kwargs)

    _codes.add(call.__code__)  # type: ignore[attr-defined]
    call._asks = True  # type: ignore[attr-defined]
    call.__module__, call.__qualname__ = module, name  # so that it pickles as what it is asked for by
    return call


def plain(function: Any) -> Any:
    """The function itself, without what :func:`asking` made of it; others that wrap it stay."""
    same = getattr(function, "__code__", None) in _codes
    return function.__wrapped__ if same else function


def asks(function: Any) -> bool:
    """Whether it is a function that :func:`asking` made."""
    return getattr(function, "_asks", False) is True
