"""What the native communicators have in common: tensors become addresses, and errors those of ``torch.distributed``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tesserack import _native
from tesserack.distributed._engine import Call, Engine, QuickCalls
from tesserack.distributed._errors import DistBackendError

__all__ = ["NativeEngine", "lists", "told"]


def told(call: Callable[..., Any], *arguments: Any) -> Any:
    """The native call, whose errors are those of ``torch.distributed``."""
    try:
        return call(*arguments)
    except RuntimeError as error:
        raise DistBackendError(str(error)) from None


class _Closed:
    """In place of a communicator that was given up."""

    def __init__(self, name: str, why: str = "was destroyed") -> None:
        self._name, self._why = name, why

    def __getattr__(self, method: str) -> Any:
        if method in ("abort", "leave"):
            return lambda *reason: None
        raise DistBackendError(f"{method}: expected a group in use, got one that {self._why} ({self._name})")


class NativeEngine(Engine):
    """Collectives of ``core/native/comm``."""

    joins_cards = True
    _group: Any

    def settle(self, timeout: float) -> None:
        """Until all ranks have what they need of the store: the one that keeps it may fail from then on."""
        told(self._group.settle, timeout)

    def prepare(self, recorder: Any) -> None:
        self.quick = QuickCalls(*_native._quick_calls(self._group, recorder.ring))

    def barrier(self, call: Call) -> None:
        told(self._group.barrier, *call)

    def broadcast(self, tensor: Any, root: int, call: Call) -> None:
        told(self._group.broadcast, tensor.data_ptr(), tensor.numel(), tensor.dtype, root, *call)

    def all_reduce(self, source: Any, target: Any, op: int, call: Call) -> None:
        arguments = source.data_ptr(), target.data_ptr(), source.numel(), source.dtype, op
        told(self._group.all_reduce, *arguments, *call)

    def reduce(self, source: Any, target: Any, op: int, root: int, call: Call) -> None:
        arguments = source.data_ptr(), target.data_ptr(), source.numel(), source.dtype, op, root
        told(self._group.reduce, *arguments, *call)

    def all_gather(self, source: Any, targets: Sequence[Any], call: Call) -> None:
        told(self._group.all_gather, source.data_ptr(), *lists(targets), source.dtype, *call)

    def gather(self, source: Any, targets: Sequence[Any], counts: Sequence[int], root: int, call: Call) -> None:
        to = [t.data_ptr() for t in targets]
        told(self._group.gather, source.data_ptr(), to, list(counts), source.dtype, root, *call)

    def scatter(self, sources: Sequence[Any], target: Any, counts: Sequence[int], root: int, call: Call) -> None:
        given = [t.data_ptr() for t in sources]
        told(self._group.scatter, given, target.data_ptr(), list(counts), target.dtype, root, *call)

    def reduce_scatter(self, sources: Sequence[Any], target: Any, op: int, call: Call) -> None:
        given, counts = lists(sources)
        told(self._group.reduce_scatter, given, target.data_ptr(), counts, target.dtype, op, *call)

    def all_to_all(self, sources: Sequence[Any], targets: Sequence[Any], call: Call) -> None:
        told(self._group.all_to_all, *lists(sources), *lists(targets), sources[0].dtype, *call)

    def send(self, tensor: Any, to: int, tag: int, call: Call) -> None:
        told(self._group.send, tensor.data_ptr(), tensor.numel(), tensor.dtype, to, tag, *call)

    def receive(self, tensor: Any, source: int, tag: int, call: Call) -> int:
        arguments = tensor.data_ptr(), tensor.numel(), tensor.dtype, source, tag
        return int(told(self._group.receive, *arguments, *call))

    def abort(self, reason: str) -> None:
        self._group.abort(reason)

    def close(self) -> None:
        self._group, self.quick = _Closed(self.name), None

    def forked(self) -> None:
        self.quick = None
        self._group = _Closed(self.name, "belongs to the process that this one was forked from")


def lists(tensors: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Addresses and numbers of elements."""
    return [t.data_ptr() for t in tensors], [t.numel() for t in tensors]
