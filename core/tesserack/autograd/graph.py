"""The recorded graph: nodes, hooks on saved tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tesserack import _native
from tesserack._native import Node, Tensor

__all__ = [
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class saved_tensors_hooks:
    """Context manager: operations recorded inside keep ``pack_hook(tensor)`` instead of the tensors they save, and get
    them back by ``unpack_hook``. With this, saved tensors can be moved, compressed or computed again.

    >>> import tesserack as ts
    >>> x = ts.tensor(3.0, requires_grad=True)
    >>> with ts.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), lambda v: ts.tensor(v)):
    ...     y = x * x
    >>> y.backward()
    >>> x.grad
    tensor(6.)
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        _native._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc: object) -> None:
        _native._pop_saved_tensors_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Context manager: tensors saved for backward wait in host memory and return to their device when needed."""

    def __init__(self, pin_memory: bool = False, device_type: str = "") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            copy = tensor.detach().to("cpu", copy=True)
            return tensor.device, copy

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, copy = packed
            return copy.to(device)

        super().__init__(pack, unpack)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Context manager: using saved-tensor hooks inside raises ``RuntimeError(error_message)``."""
    _native._disable_saved_tensors_hooks(error_message)
    try:
        yield
    finally:
        _native._disable_saved_tensors_hooks(None)


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """Context manager: tensors saved for backward inside may be modified in place; backward sees their old values."""
    with saved_tensors_hooks(lambda tensor: tensor.detach().clone(), lambda tensor: tensor):
        yield
