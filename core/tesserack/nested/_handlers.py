"""Which function does what with nested tensors. The modules that have the functions are imported with the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack._tensor.overrides import DisableTorchFunctionSubclass

__all__ = ["call", "call_named", "call_rows", "handles", "row_handles", "unsupported"]

_Handler = Callable[..., Any]
_HANDLERS: dict[str, _Handler] = {}  # of the layout jagged
_ROW_HANDLERS: dict[str, _Handler] = {}  # of the layout strided
# Of the values and of the class alone: they run as for any tensor.
_AS_TENSOR = {
    *("backward", "grad", "as_subclass", "requires_grad_", "register_post_accumulate_grad_hook", "retain_grad"),
    *("__get__", "__set__"),
    *("is_floating_point", "is_complex", "is_signed", "is_inference", "element_size", "get_device", "is_pinned"),
    *("data_ptr", "untyped_storage", "storage_offset", "is_shared", "share_memory_", "is_tensor", "is_conj", "is_neg"),
}


def _into(table: dict[str, _Handler], names: tuple[str, ...]) -> Callable[[_Handler], _Handler]:
    def decorate(handler: _Handler) -> _Handler:
        table.update(dict.fromkeys(names, handler))
        return handler

    return decorate


def handles(*names: str) -> Callable[[_Handler], _Handler]:
    """Decorator: the function is called for those of these names, with the function itself before its arguments."""
    return _into(_HANDLERS, names)


def row_handles(*names: str) -> Callable[[_Handler], _Handler]:
    """The same for tensors of the strided layout."""
    return _into(_ROW_HANDLERS, names)


def unsupported(name: str, why: str = "") -> NotImplementedError:
    """The error for what nested tensors cannot do."""
    return NotImplementedError(
        f"{name}: not supported for nested tensors{why and ': ' + why}; try to_padded_tensor() for a dense one, or "
        "unbind() for the rows"
    )


def call(func: Any, args: Any, kwargs: Any) -> Any:
    """Run a function with nested tensors among its arguments. ``NotImplementedError`` if it has no rule."""
    return _call(_HANDLERS, func, args, kwargs)


def call_rows(func: Any, args: Any, kwargs: Any) -> Any:
    """The same with tensors of the strided layout among them."""
    return _call(_ROW_HANDLERS, func, args, kwargs)


def call_named(name: str, *args: Any) -> Any:
    """What a method of nested tensors does that is written with more than the class."""
    return _HANDLERS[name](None, *args)


def _call(handlers: dict[str, _Handler], func: Any, args: Any, kwargs: Any) -> Any:
    name = str(getattr(func, "__name__", func))
    if name in _AS_TENSOR:
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    handler = handlers.get(name)
    if handler is None:
        raise unsupported(name)
    if kwargs.get("out") is not None:
        raise unsupported(name, "out= was given")
    kwargs.pop("out", None)
    return handler(func, *args, **kwargs)
