"""Subclasses of Tensor: a tensor's memory as one, and those that answer every call by ``__torch_dispatch__``."""

from __future__ import annotations

from tesserack import _native
from tesserack._native import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = [
    "DISPATCH_KEY",
    "as_subclass",
    "autograd_off",
    "dispatch_off",
    "has_no_memory",
    "make_wrapper_subclass",
    "no_dispatch",
    "no_override",
]

DISPATCH_KEY = "Python"  # where calls come that __torch_dispatch__ answers


def has_no_memory(tensor: Tensor) -> bool:
    """Of one made by :func:`make_wrapper_subclass`, whose class holds the values."""
    return bool(tensor.numel()) and not tensor.is_meta and not tensor.data_ptr()


def no_dispatch(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The operator itself, whatever the classes of its arguments: what Tensor has as ``__torch_dispatch__``.

    Gradients were recorded before the call came to a class, and are not again.
    """
    with autograd_off(), dispatch_off():
        return func(*args, **(kwargs or {}))


class _Off:
    """As a context: this thread's calls pass by a key."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        self._before = _native._exclude_key(self._key, True)

    def __exit__(self, *exc: object) -> None:
        _native._exclude_key(self._key, self._before)


def dispatch_off() -> _Off:
    """Within it, no ``__torch_dispatch__`` is asked."""
    return _Off(DISPATCH_KEY)


def autograd_off() -> _Off:
    """Within it, no gradient is recorded."""
    return _Off("Autograd")


def no_override(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """As ``__torch_function__`` of a class: it overrides nothing, and results are plain tensors."""
    return NotImplemented


def as_subclass(self: Tensor, cls: type[Tensor]) -> Any:
    """This tensor's memory as an instance of a subclass; its gradient goes on. ``TypeError`` for other classes."""
    return self._as_subclass(cls)


def make_wrapper_subclass(
    cls: type[Tensor],
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = _native.strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    dispatch_sizes_strides_policy: str | None = None,
    dispatch_device: bool = False,
    dispatch_layout: bool = False,
    _extra_dispatch_keys: Any = None,
    storage_size: int | None = None,
) -> Tensor:
    """An instance of ``cls`` that has sizes, dtype and device but no memory.

    Every call with it comes to the class's ``__torch_dispatch__(func, types, args, kwargs)``, below autograd; ``func``
    is an operator such as ``torch.ops.aten.add.Tensor``. What it is asked for without a call (shape, strides, device)
    is what is given here: the ``dispatch_`` options change nothing.

    Raises:
        TypeError: ``cls`` is no subclass of Tensor with a ``__torch_dispatch__`` of its own.

    >>> import tesserack as ts
    >>> class Doubled(ts.Tensor):
    ...     @staticmethod
    ...     def __new__(cls, half):
    ...         made = ts.Tensor._make_wrapper_subclass(cls, half.shape, dtype=half.dtype, device=half.device)
    ...         made.half = half
    ...         return made
    ...     @classmethod
    ...     def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
    ...         plain = [x.half * 2 if isinstance(x, cls) else x for x in args]
    ...         return func(*plain, **(kwargs or {}))
    >>> Doubled(ts.ones(2)) + 1
    tensor([3., 3.])
    """
    if getattr(cls, "__torch_dispatch__", None) is Tensor.__torch_dispatch__:
        raise TypeError(f"{cls.__name__} must define __torch_dispatch__")
    if layout is not _native.strided:
        raise TypeError(f"_make_wrapper_subclass: expected the layout strided, got {layout}")
    if strides is None and memory_format not in (None, _native.contiguous_format, _native.preserve_format):
        from tesserack import empty

        strides = empty(tuple(size), memory_format=memory_format, device="meta").stride()
    return Tensor._make_wrapper(  # type: ignore[no-any-return]
        cls,
        tuple(size),
        None if strides is None else tuple(strides),
        storage_offset or 0,
        dtype or _native.get_default_dtype(),
        device or _native.get_default_device(),
        requires_grad,
    )
