"""Operators that are given functions: ``torch.ops.higher_order.cond`` and its like."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tesserack.aten.modes import _only, stack

__all__ = ["HigherOrderOperator", "higher_order_operators"]

_operators: dict[str, HigherOrderOperator] = {}
# Keys of PyTorch's dispatcher at which an implementation is the plain computation.
_PLAIN = frozenset({"CompositeExplicitAutograd", "CompositeImplicitAutograd", "CPU", "CUDA"})


class HigherOrderOperator:
    """An operator of which some arguments are functions; ``torch.ops.higher_order`` shows it by its name.

    A ``TorchDispatchMode`` may take its calls over: by a function that :meth:`py_impl` registers for its class, or in
    its ``__torch_dispatch__``, if it has ``supports_higher_order_operators``. Otherwise the plain computation runs,
    and modes see the operators that it is made of.

    >>> class Twice(HigherOrderOperator):
    ...     def compute(self, f, x):
    ...         return f(f(x))
    >>> Twice("twice")(lambda x: x * 3, 1)
    9
    """

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = self.__qualname__ = name
        self.__module__ = "torch.ops.higher_order"
        self.cacheable = cacheable
        self.namespace = "higher_order"
        self.py_kernels: dict[Any, Callable[..., Any]] = {}
        _operators[name] = self

    def name(self) -> str:
        """The name, without its namespace."""
        return self._name

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """The plain computation."""
        for key, function in self.py_kernels.items():
            if str(key).rpartition(".")[2] in _PLAIN:
                return function(*args, **kwargs)
        raise NotImplementedError(f"{self._name}: it has no plain computation; register one by py_impl")

    def py_impl(self, k: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator: what calls within modes of a class ``k`` do, called as ``f(mode, *args)``; or the plain
        computation, for a key of PyTorch's dispatcher that means it."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.py_kernels[k] = function
            return function

        return register

    def taken_over(self) -> bool:
        """Whether the innermost mode takes calls over."""
        modes = stack()
        return bool(modes) and self._handler(modes[-1]) is not None

    def _handler(self, mode: Any) -> Callable[..., Any] | None:
        for kind in type(mode).__mro__:
            if kind in self.py_kernels:
                return self.py_kernels[kind]
        if not mode.supports_higher_order_operators:
            return None
        return lambda mode, *args, **kwargs: mode.__torch_dispatch__(self, (), args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        modes = stack()
        handler = self._handler(modes[-1]) if modes else None
        if handler is None:
            return self.compute(*args, **kwargs)
        with _only(modes[:-1]):
            result = handler(modes[-1], *args, **kwargs)
            return self(*args, **kwargs) if result is NotImplemented else result

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<HigherOrderOperator(op='{self._name}')>"

    def __reduce__(self) -> Any:
        return higher_order_operator, (self._name,)

    def __deepcopy__(self, memo: Any) -> HigherOrderOperator:
        return self


def higher_order_operator(name: str) -> HigherOrderOperator:
    """The operator of that name. ``AttributeError`` if there is none."""
    with contextlib.suppress(KeyError):
        return _operators[name]
    raise AttributeError(f"torch.ops.higher_order has no operator {name!r}; there are {', '.join(sorted(_operators))}")


def higher_order_operators() -> dict[str, HigherOrderOperator]:
    """Those that are known, by name."""
    return _operators
