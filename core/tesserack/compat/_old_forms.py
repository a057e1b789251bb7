"""What tensors do under the hook only: old forms of calls, as ``p.addcmul_(2.0, a, b)``, and ``is_mps``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tesserack._native import Tensor

__all__ = ["install", "remove"]

# Methods whose scale came first: the argument it is now, and how many tensors follow it.
_SCALED = {
    **dict.fromkeys(("add", "add_", "sub", "sub_"), ("alpha", 1)),
    **dict.fromkeys(("addcmul", "addcmul_", "addcdiv", "addcdiv_"), ("value", 2)),
}
# Questions that PyTorch's tensors answer for every device and layout it knows.
_DEVICES = ("mps", "xpu", "ipu", "mtia", "maia", "xla", "vulkan")
_NEVER = ("is_mkldnn",)
_kept: dict[str, Any] = {}
_added: list[str] = []


def _scaled(method: Callable[..., Any], name: str, tensors: int) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) == tensors + 1 and isinstance(args[0], (int, float)):
            return method(self, *args[1:], **{name: args[0]}, **kwargs)
        return method(self, *args, **kwargs)

    return call


def _backward(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def backward(self: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(gradient, (list, tuple)) and len(gradient) == 1:
            gradient = gradient[0]
        return method(self, gradient, *args, **kwargs)

    return backward


def _data_ptr(method: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(method)
    def data_ptr(self: Any) -> int:
        return 0 if self.is_meta else method(self)

    return data_ptr


def _is_on(self: Any, device: str) -> bool:
    return bool(self.device.type == device)


def _add_questions() -> None:
    for name in _DEVICES:
        if f"is_{name}" not in dir(Tensor):
            _add(f"is_{name}", property(functools.partial(_is_on, device=name)))
    for name in _NEVER:
        if name not in dir(Tensor):
            _add(name, property(lambda self: False))


def _add(name: str, member: Any) -> None:
    setattr(Tensor, name, member)
    _added.append(name)


def install() -> None:
    """Let methods of tensors take the old forms too, and tensors answer for every device that PyTorch knows."""
    if _kept:
        return
    makers: dict[str, Callable[[Any], Any]] = {"backward": _backward, "data_ptr": _data_ptr}
    for name, (argument, tensors) in _SCALED.items():
        makers[name] = functools.partial(_scaled, name=argument, tensors=tensors)
    for name, make in makers.items():
        _kept[name] = getattr(Tensor, name)
        setattr(Tensor, name, make(_kept[name]))
    _add_questions()


def remove() -> None:
    """Take back what :func:`install` did."""
    for name, method in _kept.items():
        setattr(Tensor, name, method)
    _kept.clear()
    for name in _added:
        delattr(Tensor, name)
    _added.clear()
