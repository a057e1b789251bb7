"""Tensors that are made of others, and what asks for the modes of this thread."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.aten.modes import TorchDispatchMode, entered, stack

__all__ = [
    "is_in_torch_dispatch_mode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing",
    "transform_subclass",
]


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether it is a tensor made of others, which it tells by ``__tensor_flatten__``."""
    return isinstance(t, Tensor) and is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether tensors of the class are such ones."""
    return issubclass(t, Tensor) and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def transform_subclass(
    t: Any, callback: Any, outer_size: Any = None, outer_stride: Any = None, *_: Any, **__: Any
) -> Any:
    """The same subclass over what ``callback(name, inner)`` makes of each tensor that it is made of."""
    names, context = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    return type(t).__tensor_unflatten__(inner, context, size, stride)


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """What ``__torch_dispatch__`` returns for ``out``: the argument itself, where the operator wrote to it."""
    returns, arguments = func._schema.returns, func._schema.arguments
    written = [returned.alias_info is not None and returned.alias_info.is_write for returned in returns]
    if not any(written):
        return out
    given = dict(zip((argument.name for argument in arguments), args, strict=False)) | dict(kwargs or {})

    def argument_of(returned: Any) -> Any:
        name = next(
            a.name for a in arguments if a.is_write and a.alias_info.before_set & returned.alias_info.before_set
        )
        return given[name]

    if len(returns) == 1:
        return argument_of(returns[0])
    return type(out)(argument_of(r) if w else o for r, w, o in zip(returns, written, out, strict=True))


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether this thread is within a mode."""
    return entered()


def is_in_any_mode_without_ignore_compile_internals() -> bool:
    """The same; no mode here asks to be ignored."""
    return entered()


def _get_current_dispatch_mode() -> TorchDispatchMode | None:
    """The innermost mode."""
    return stack()[-1] if stack() else None


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    return list(stack())
