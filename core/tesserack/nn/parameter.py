"""Tensors that a Module registers when they are assigned to it."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor, empty
from tesserack._tensor_methods import no_override

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A leaf tensor that a :class:`Module` lists among its parameters.

    Shares memory with ``data``; gradients are recorded unless ``requires_grad=False``.
    Integer data needs ``requires_grad=False``, otherwise the tensor core raises ``RuntimeError``.

    >>> import tesserack
    >>> w = Parameter(tesserack.zeros(2, 3))
    >>> tuple(w.shape), w.requires_grad, w.is_leaf
    ((2, 3), True, True)
    """

    __torch_function__ = no_override  # type: ignore[assignment]

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(
                f"Parameter: expected a Tensor, got {type(data).__name__}; wrap it with tesserack.tensor(...)"
            )
        return Tensor._make_subclass(cls, data, requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + repr(_plain(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        return memo[id(self)]  # type: ignore[no-any-return]


class Buffer(Tensor):
    """A tensor that a :class:`Module` keeps as a buffer: saved with it, moved with it, never trained.

    ``persistent=False`` leaves it out of ``state_dict``.

    >>> import tesserack
    >>> from tesserack import nn
    >>> m = nn.Module()
    >>> m.mean = nn.Buffer(tesserack.zeros(3))
    >>> [name for name, _ in m.named_buffers()]
    ['mean']
    """

    persistent: bool
    __torch_function__ = no_override  # type: ignore[assignment]

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(f"Buffer: expected a Tensor, got {type(data).__name__}; wrap it with tesserack.tensor(...)")
        buffer = Tensor._make_subclass(cls, data, data.requires_grad)
        buffer.persistent = persistent
        return buffer

    def __repr__(self) -> str:
        return repr(_plain(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), persistent=self.persistent)
        return memo[id(self)]  # type: ignore[no-any-return]


def _plain(tensor: Tensor) -> Tensor:
    """The same values as a base Tensor, keeping the requires_grad mark that repr shows."""
    return Tensor._make_subclass(Tensor, tensor, tensor.requires_grad)
