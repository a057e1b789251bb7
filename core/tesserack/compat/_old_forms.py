"""What tensors do under the hook only: old forms of calls, as ``p.addcmul_(2.0, a, b)``, and ``is_mps``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack.utils.warnings import warn_once

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


def _is_scale(value: Any) -> bool:
    return isinstance(value, (int, float, complex)) or (isinstance(value, Tensor) and value.dim() == 0)


def _scaled(method: Callable[..., Any], name: str, tensors: int) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:  # self among them, which a function's call may name as it likes
        if len(args) == tensors + 2 and _is_scale(args[1]):
            _warn(method)
            scale = args[1].item() if isinstance(args[1], Tensor) else args[1]
            return method(args[0], *args[2:], **{name: scale}, **kwargs)
        return method(*args, **kwargs)

    return call


# Products that took the scale of the sum first, and that of the product after it.
_PRODUCTS = ("addmm", "addbmm", "baddbmm", "addmv", "addr")


def _weighted(method: Callable[..., Any]) -> Callable[..., Any]:
    """``addmm([beta,] self, [alpha,] a, b)``, as a function."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 3 and isinstance(args[0], (int, float, complex)):
            scales = {"beta": args[0]}
            if len(args) == 5:
                scales["alpha"] = args[2]
            _warn(method)
            return method(args[1], *args[-2:], **scales, **kwargs)
        return method(*args, **kwargs)

    return call


def _weighted_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """``self.addmm([beta, [alpha,]] a, b)``."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) > 2 and isinstance(args[0], (int, float, complex)):
            scales = dict(zip(("beta", "alpha"), args[:-2], strict=False))
            _warn(method)
            return method(self, *args[-2:], **scales, **kwargs)
        return method(self, *args, **kwargs)

    return call


def _warn(method: Callable[..., Any]) -> None:
    """Once for each function, as programs of that age call them in loops."""
    warn_once(f"This overload of {method.__name__} is deprecated: give the scale by name", 4)


# What PyTorch took away and still names, and what says the same.
_REMOVED = {
    "eig": "linalg.eig or linalg.eigvals",
    "lstsq": "linalg.lstsq, with its arguments swapped",
    "matrix_rank": "linalg.matrix_rank",
    "solve": "linalg.solve, with its arguments swapped",
    "symeig": "linalg.eigh or linalg.eigvalsh",
}


def _removed(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"torch.{name} was removed from PyTorch; try torch.{_REMOVED[name]}")

    call.__name__ = call.__qualname__ = name
    return call


def functions() -> dict[str, Callable[..., Any]]:
    """The functions of the package that take old forms, or none any more, by name."""
    import tesserack as ts

    scaled = {name: _scaled(getattr(ts, name), *_SCALED[name]) for name in ("add", "sub", "addcmul", "addcdiv")}
    removed = {name: _removed(name) for name in _REMOVED}
    return scaled | removed | {name: _weighted(getattr(ts, name)) for name in _PRODUCTS}


_KEPT = (
    "Using backward() with create_graph=True: gradients and what they were computed from hold each other until .grad "
    "is reset or the collector comes; autograd.grad() returns them instead"
)


def _backward(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def backward(self: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("create_graph") or (len(args) > 1 and args[1]):
            warn_once(_KEPT)
        if isinstance(gradient, (list, tuple)) and len(gradient) == 1:
            gradient = gradient[0]
        return method(self, gradient, *args, **kwargs)

    return backward


def _data_ptr(method: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(method)
    def data_ptr(self: Any) -> int:
        return 0 if self.is_meta else method(self)

    return data_ptr


def _where(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def where(self: Any, condition: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(condition, Tensor) and condition.dtype is _native.uint8:
            warn_once(
                "where received a uint8 condition tensor. This behavior is deprecated. Use a boolean condition instead."
            )
            condition = condition.bool()
        return method(self, condition, *args, **kwargs)

    return where


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
    makers: dict[str, Callable[[Any], Any]] = {"backward": _backward, "data_ptr": _data_ptr, "where": _where}
    for name, (argument, tensors) in _SCALED.items():
        makers[name] = functools.partial(_scaled, name=argument, tensors=tensors)
    makers |= dict.fromkeys((*_PRODUCTS, *(f"{name}_" for name in _PRODUCTS)), _weighted_method)
    for name, make in makers.items():
        _kept[name] = getattr(Tensor, name)
        setattr(Tensor, name, make(_kept[name]))
    for name in _REMOVED:
        if name != "matrix_rank":  # which was a function alone
            _add(name, _removed(name))
    _add_questions()


def remove() -> None:
    """Take back what :func:`install` did."""
    for name, method in _kept.items():
        setattr(Tensor, name, method)
    _kept.clear()
    for name in _added:
        delattr(Tensor, name)
    _added.clear()
