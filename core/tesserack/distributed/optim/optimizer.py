"""Optimizers of parameters that lie in several processes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from tesserack.distributed import autograd, rpc
from tesserack.distributed.rpc import RRef

__all__ = ["DistributedOptimizer"]

_stepping = threading.Lock()  # gradients stand in `grad` meanwhile


class _LocalOptimizer:
    """One worker's part: an optimizer of its parameters."""

    def __init__(self, kind: type, parameters: Sequence[RRef[Any]], args: Any, kwargs: Any) -> None:
        self._parameters = [reference.local_value() for reference in parameters]
        self._optimizer = kind(self._parameters, *args, **kwargs)

    def step(self, context: int) -> None:
        """A step by the gradients of a context."""
        found = autograd.get_gradients(context)
        with _stepping:
            before = [parameter.grad for parameter in self._parameters]
            for parameter in self._parameters:
                parameter.grad = found.get(parameter)
            try:
                self._optimizer.step()
            finally:
                for parameter, grad in zip(self._parameters, before, strict=True):
                    parameter.grad = grad


def _made(kind: type, parameters: Sequence[RRef[Any]], args: Any, kwargs: Any) -> RRef[_LocalOptimizer]:
    return RRef(_LocalOptimizer(kind, parameters, args, kwargs))


class DistributedOptimizer:
    """An optimizer of parameters wherever they are: each worker that has some gets one of the class for them.

    ``optimizer_class(parameters, *args, **kwargs)`` is made there; :meth:`step` takes the gradients of a context of
    ``distributed.autograd``. Steps of one worker's parameters come one after another.

    >>> import tesserack as ts
    >>> from tesserack.distributed import autograd, rpc
    >>> from tesserack.distributed.rpc._begin import alone
    >>> w = ts.tensor([2.0], requires_grad=True)
    >>> with alone() as name, autograd.context() as number:
    ...     optimizer = DistributedOptimizer(ts.optim.SGD, [rpc.RRef(w)], lr=0.5)
    ...     autograd.backward(number, [rpc.rpc_sync(name, ts.square, args=(w,)).sum()])
    ...     optimizer.step(number)
    >>> w.item()
    0.0
    """

    def __init__(self, optimizer_class: type, params_rref: Sequence[RRef[Any]], *args: Any, **kwargs: Any) -> None:
        by_owner: dict[Any, list[RRef[Any]]] = {}
        for reference in params_rref:
            by_owner.setdefault(reference.owner(), []).append(reference)
        if not by_owner:
            raise ValueError("DistributedOptimizer: expected references to parameters, got none")
        answers = [
            rpc.rpc_async(owner, _made, args=(optimizer_class, members, args, kwargs))
            for owner, members in by_owner.items()
        ]
        self.remote_optimizers: list[RRef[Any]] = [answer.wait() for answer in answers]

    def step(self, context_id: int) -> None:
        """A step of every worker's part by the gradients of a context; an error is raised when all are through."""
        autograd.get_gradients(context_id)
        answers = [reference.rpc_async().step(context_id) for reference in self.remote_optimizers]
        errors = []
        for answer in answers:
            try:
                answer.wait()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
