"""What went between processes within a context: which tensors gradients come back for, and to whom.

A context has a number that goes along with each call and answer, so that every worker it touches has a part of it.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd import Function
from tesserack.autograd.graph import GradientEdge, get_gradient_edge

__all__ = [
    "Context", "Note", "Place", "begin", "context", "current", "end", "forget", "incoming", "leave", "new", "outgoing",
    "within",
]  # fmt: skip

_BITS = 48  # of a number, below the worker that made it


class Place(NamedTuple):
    """A tensor of a message: the message's number, and which of its tensors."""

    message: int
    at: int


class Note(NamedTuple):
    """What goes along with a message: the context, and which tensors want gradients."""

    context: int
    message: int
    wanted: tuple[int, ...]


class Context:
    """One worker's part of a context."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lock = threading.RLock()
        self.sent: dict[Place, GradientEdge] = {}  # where gradients of what we sent come in
        self.came: dict[Any, tuple[int, Place]] = {}  # by node: who sent it, and as what
        self.peers: set[int] = set()
        self.gradients: dict[int, tuple[Tensor, Tensor]] = {}
        self.passes: dict[Any, Any] = {}
        self.spent = False  # whether a backward pass has been that keeps no graph

    def add(self, leaf: Tensor, gradient: Tensor) -> None:
        """A gradient of a leaf of ours comes to what there is."""
        with self.lock:
            known = self.gradients.get(id(leaf))
            self.gradients[id(leaf)] = leaf, gradient if known is None else known[1] + gradient


class _Thread(threading.local):
    number: int | None = None


_thread = _Thread()
_contexts: dict[int, Context] = {}
_over: collections.OrderedDict[int, None] = collections.OrderedDict()  # of late: what comes still is of none
_LATE = 4096  # of those
_lock = threading.Lock()
_count = itertools.count()
_worker = 0


def begin(worker: int) -> None:
    """Calls can be made, by this worker."""
    global _worker
    _worker = worker


def end() -> None:
    """No calls are made any more: what is left of contexts goes."""
    with _lock:
        _contexts.clear()
        _over.clear()


def _number() -> int:
    return (_worker << _BITS) | next(_count)


def new() -> int:
    """Begin a context in this thread; its number. ``RuntimeError`` within another."""
    if _thread.number is not None:
        raise RuntimeError("Already have an autograd context id for this thread.")
    number = _number()
    with _lock:
        _contexts[number] = Context(number)
    _thread.number = number
    return number


def forget(number: int) -> Context | None:
    """Our part of a context is needed no more; it, for who tells the others."""
    with _lock:
        _over[number] = None
        while len(_over) > _LATE:
            _over.popitem(last=False)
        return _contexts.pop(number, None)


def context(number: int) -> Context:
    """Our part of a context. ``RuntimeError`` if there is none."""
    with _lock:
        found = _contexts.get(number)
    if found is None:
        raise RuntimeError(f"Could not find autograd context with id: {number}")
    return found


def current() -> int | None:
    """The context of this thread."""
    return _thread.number


def leave() -> None:
    """This thread is in no context any more."""
    _thread.number = None


@contextlib.contextmanager
def within(note: Note | None) -> Iterator[None]:
    """Within it this thread is in the context of a message, if it has one."""
    before, _thread.number = _thread.number, note.context if note else None
    try:
        yield
    finally:
        _thread.number = before


def outgoing(to: int, tensors: list[Tensor]) -> Note | None:
    """What goes along with tensors that are sent to a worker; None outside of contexts, and where one is over."""
    number = _thread.number
    if number is None or number in _over:
        return None
    part = context(number)
    wanted = tuple(k for k, x in enumerate(tensors) if x.requires_grad)
    message = _number()
    with part.lock:
        part.peers.add(to)
        part.sent.update({Place(message, k): get_gradient_edge(tensors[k]) for k in wanted})
    return Note(number, message, wanted)


class RecvRpcBackward(Function):
    """Where a tensor came from another worker."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, x: Tensor) -> Tensor:
        """The tensor itself, which wants gradients from now on."""
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        """Nothing: what comes here is taken by who asks for it."""
        return None, None


def incoming(sender: int, note: Note | None, tensors: list[Tensor]) -> list[Tensor]:
    """Tensors that came, as the graph's beginning here where gradients go back to their sender."""
    if note is None:
        return tensors
    with _lock:
        if note.context in _over:
            return tensors
        part = _contexts.setdefault(note.context, Context(note.context))
    with part.lock:
        part.peers.add(sender)
    made = list(tensors)
    for k in note.wanted:
        with ts.enable_grad():
            made[k] = RecvRpcBackward.apply(ts.zeros((), requires_grad=True), tensors[k])
        with part.lock:
            part.came[get_gradient_edge(made[k]).node] = sender, Place(note.message, k)
    return made
