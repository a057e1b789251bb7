"""``torch._check`` and its kin: conditions that programs state, with the error that each raises."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tesserack as ts

__all__: list[str] = []

Message = Callable[[], Any] | None


def _raise(kind: type[Exception], condition: Any, message: Message) -> None:
    if not isinstance(condition, bool):
        raise TypeError(f"cond must be a bool, but got {type(condition)}")
    if condition:
        if watch := sys.modules.get("tesserack.fx.export._watch"):
            watch.stated(sys._getframe(2))
        return
    if message is not None and not callable(message):
        raise TypeError("message must be a callable")
    text = "Expected cond to be True, but got False." if message is None else str(message())
    raise kind(text)


def _check(cond: Any, message: Message = None) -> None:
    """``RuntimeError`` with ``message()`` unless the condition holds.

    >>> _check(1 + 1 == 2, lambda: "arithmetic")
    """
    _raise(RuntimeError, cond, message)


def _check_with(error_type: type[Exception], cond: Any, message: Message) -> None:
    _raise(error_type, cond, message)


def _check_index(cond: Any, message: Message = None) -> None:
    _raise(IndexError, cond, message)


def _check_value(cond: Any, message: Message = None) -> None:
    _raise(ValueError, cond, message)


def _check_type(cond: Any, message: Message = None) -> None:
    _raise(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Message = None) -> None:
    _raise(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Message = None, *, max: Any = None) -> None:
    """``RuntimeError`` for a negative size, or one above ``max``."""
    _raise(RuntimeError, i >= 0 and (max is None or i <= max), message)


def _check_tensor_all(cond: Any, message: Message = None) -> None:
    """``RuntimeError`` unless all elements are true; ``TypeError`` for what is no tensor of bools."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _check_tensor_all_with(error_type: type[Exception], cond: Any, message: Message = None) -> None:
    if not isinstance(cond, ts.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype != ts.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _raise(error_type, bool(cond.all()), message)
