"""Which function does what with nested tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tesserack import Tensor
from tesserack._tensor.overrides import DisableTorchFunctionSubclass
from tesserack.nested._tensor import NestedTensor

__all__ = ["call", "ensure", "handles", "unsupported"]

_HANDLERS: dict[str, Callable[..., Any]] = {}
# Of the values and of the class alone: they run as for any tensor.
_AS_TENSOR = {
    *("as_subclass", "requires_grad_", "register_post_accumulate_grad_hook", "retain_grad", "__get__", "__set__"),
    *("is_floating_point", "is_complex", "is_signed", "is_inference", "element_size", "get_device", "is_pinned"),
    *("data_ptr", "untyped_storage", "storage_offset", "is_shared", "share_memory_", "is_tensor", "is_conj", "is_neg"),
}


def handles(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function is called for those of these names, with the function itself before its arguments."""

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        _HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return decorate


@functools.cache
def ensure() -> None:
    """Import the modules whose functions are handlers."""
    from tesserack.nested import _attention, _layers, _misc, _pointwise, _reduce, _shape  # noqa: F401


def unsupported(name: str, why: str = "") -> NotImplementedError:
    """The error for what nested tensors cannot do."""
    return NotImplementedError(
        f"{name}: not supported for nested tensors{why and ': ' + why}; try to_padded_tensor() for a dense one, or "
        "unbind() for the rows"
    )


def call(func: Any, args: Any, kwargs: Any) -> Any:
    """Run a function with nested tensors among its arguments. ``NotImplementedError`` if it has no rule."""
    name = str(getattr(func, "__name__", func))
    if name in _AS_TENSOR:
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    ensure()
    return call_handler(_HANDLERS, name, func, args, kwargs)


def call_handler(handlers: Any, name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """The rule of a name. ``NotImplementedError`` if there is none, or for ``out=``."""
    handler = handlers.get(name)
    if handler is None:
        raise unsupported(name)
    if kwargs.get("out") is not None:
        raise unsupported(name, "out= was given")
    kwargs.pop("out", None)
    return handler(func, *args, **kwargs)


def plain(value: Any) -> Any:
    """The values of a nested tensor; anything else itself."""
    return value.values() if isinstance(value, NestedTensor) else value


def nested_among(values: Any) -> list[NestedTensor]:
    """The nested tensors among some arguments."""
    return [v for v in values if isinstance(v, NestedTensor)]


def is_dense(value: Any) -> bool:
    """Whether it is a tensor that is not nested."""
    return isinstance(value, Tensor) and not isinstance(value, NestedTensor)
