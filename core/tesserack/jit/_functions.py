"""Functions with gradients of their own in traced programs: called again, so that these are theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.autograd import _whole
from tesserack.jit._python_call import operator, register, unseen
from tesserack.jit._sizes import Number, TracedInt
from tesserack.utils import _pytree as pytree

__all__ = ["FunctionCall", "FunctionCalls"]


class FunctionCall:
    """One call: what a graph's run gives its tensors to, and takes the tensors of its result from."""

    computes, _make = True, None  # as calls are that compiled programs make

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function = function
        leaves, self.spec = pytree.tree_flatten(args)
        # Numbers that follow from sizes go there as tensors.
        self.numbers = {k for k, leaf in enumerate(leaves) if isinstance(leaf, Number)}
        self.places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, (Tensor, Number))]
        self.tensors = [_as_tensor(leaves[k]) for k in self.places]
        self.leaves = [None if k in self.places else leaf for k, leaf in enumerate(leaves)]
        self.count = -1  # tensors of the result
        self.number = register(self)

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """The tensors of its result."""
        leaves = [*self.leaves]
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = _number_in(tensor) if place in self.numbers else tensor
        self.result: Any = self.function(*pytree.tree_unflatten(leaves, self.spec))
        found = [leaf for leaf in pytree.tree_leaves(self.result) if isinstance(leaf, Tensor)]
        if self.count not in (-1, len(found)):
            raise RuntimeError(
                f"jit.trace: expected {self.count} tensors of a function, as when it was traced, got {len(found)}"
            )
        self.count = len(found)
        return found

    def finish(self) -> None:
        """Hold nothing of the run that is traced."""
        self.tensors, self.result = [], None


def _as_tensor(leaf: Any) -> Tensor:
    if isinstance(leaf, Tensor):
        return leaf
    number: Any = leaf
    return ts.full((), number, dtype=ts.int64 if isinstance(leaf, TracedInt) else ts.float64)


def _number_in(tensor: Tensor) -> Any:
    with unseen():
        return tensor.item()


class FunctionCalls:
    """Takes the calls of this thread, as ``autograd/_whole.py`` hands them out, while a program is traced."""

    def __init__(self) -> None:
        self.calls: list[FunctionCall] = []
        self._thread, self._inside = threading.get_ident(), False
        self._some = ts.empty(0, requires_grad=True)  # so that each comes to where gradients are recorded

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Within it they are taken."""
        _whole.takers.append(self._take)
        try:
            yield
        finally:
            _whole.takers.remove(self._take)
            for call in self.calls:
                call.finish()

    def _take(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], computes: bool, divisible: bool
    ) -> Any:
        own = function is _native._function_apply and not self._inside and _native.is_grad_enabled()
        if not own or kwargs or threading.get_ident() != self._thread:
            return NotImplemented
        self._inside = True
        try:
            call = FunctionCall(function, args)
            self.calls.append(call)
            operator()(call.number, [self._some, *call.tensors])
            return call.result
        finally:
            self._inside = False
