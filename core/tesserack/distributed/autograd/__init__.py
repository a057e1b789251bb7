"""Gradients through calls into other processes, by ``torch.distributed.autograd``'s names."""

from __future__ import annotations

from tesserack import Tensor
from tesserack.distributed.autograd import _contexts as contexts
from tesserack.distributed.autograd._backward import backward
from tesserack.distributed.rpc._current import current, is_current

__all__ = ["backward", "context", "get_gradients", "is_available"]


def is_available() -> bool:
    """Always True."""
    return True


class context:
    """As a context manager: calls of ``distributed.rpc`` within it are part of one graph over processes.

    What it gives is its number, for :func:`backward`, optimizers and :func:`get_gradients`. Gradients are the
    context's, so that several may be under way in one process; they are gone with it.

    >>> import tesserack as ts
    >>> from tesserack.distributed import autograd, rpc
    >>> from tesserack.distributed.rpc._begin import alone
    >>> w = ts.tensor([2.0, 3.0], requires_grad=True)
    >>> with alone() as name, autograd.context() as number:
    ...     loss = rpc.rpc_sync(name, ts.mul, args=(w, w)).sum()
    ...     autograd.backward(number, [loss])
    ...     autograd.get_gradients(number)[w]
    tensor([4., 6.])
    """

    def __enter__(self) -> int:
        current()
        self.number = contexts.new()
        return self.number

    def __exit__(self, *exc: object) -> None:
        contexts.leave()
        _forget(self.number)


def _forget(number: int) -> None:
    """A context is over, here and in every worker that it touched."""
    part = contexts.forget(number)
    if part is None or not is_current():
        return
    agent = current()
    for peer in part.peers - {agent.me.id}:
        agent.call(agent.meeting.worker(peer), _forget, (number,), {})


def get_gradients(context_id: int) -> dict[Tensor, Tensor]:
    """The gradients of a context of this process's leaves, by the leaf. ``RuntimeError`` for no context."""
    part = contexts.context(context_id)
    with part.lock:
        return dict(part.gradients.values())
