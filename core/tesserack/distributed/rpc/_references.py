"""Who holds what that lies in another process: an owner keeps a value as long as some worker has a reference.

Each reference out of the owner's process is a fork with a number of its own. The owner counts forks; who makes one of
his own reference keeps that until the owner knows the new one.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any, NamedTuple

from tesserack.distributed.rpc._current import current
from tesserack.distributed.rpc._workers import WorkerInfo
from tesserack.utils.futures import Future

__all__ = ["Fork", "Held", "Number", "References"]


class Number(NamedTuple):
    """What is told apart from all others: by the worker that made it, and a count of its own."""

    created_on: int
    local_id: int

    def __repr__(self) -> str:
        return f"GloballyUniqueId(created_on={self.created_on}, local_id={self.local_id})"


class Fork(NamedTuple):
    """A reference on its way: whose value, which, the fork's number, and who made it of his own reference."""

    owner: WorkerInfo
    value: Number
    number: Number
    parent: WorkerInfo | None


class Held:
    """A value in its owner's process, which may be still to come, and the forks that are out."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()
        self.forks: set[Number] = set()


class References:
    """The references of one agent, which are of the class ``reference``."""

    def __init__(self, agent: Any, reference: Any) -> None:
        self._agent, self._reference = agent, reference
        self._lock = threading.RLock()
        self._count = itertools.count()
        self._held: dict[Number, Held] = {}
        self._parents: dict[Number, Any] = {}  # by the fork that was made of each

    def number(self) -> Number:
        """A new one."""
        return Number(self._agent.me.id, next(self._count))

    def held(self, value: Number) -> Held:
        """A value of ours. What is to come may be asked for before it is made."""
        with self._lock:
            return self._held.setdefault(value, Held())

    def keep(self, value: Number, held: Held, fork: Number) -> None:
        """A fork of a value of ours is out."""
        with self._lock:
            self._held[value] = held
            held.forks.add(fork)

    def drop(self, value: Number, fork: Number) -> None:
        """A fork is no more; with the last one goes the value, unless a reference here has it."""
        with self._lock:
            held = self._held.get(value)
            if held is not None:
                held.forks.discard(fork)
                if not held.forks:
                    del self._held[value]

    def parent(self, fork: Number, of: Any) -> None:
        """Keep a reference until the owner knows the fork that was made of it."""
        with self._lock:
            self._parents[fork] = of

    def accept(self, fork: Number) -> None:
        """The owner knows a fork of ours."""
        with self._lock:
            self._parents.pop(fork, None)

    def adopted(self, fork: Fork) -> Any:
        """The reference that a fork becomes here."""
        agent = self._agent
        if fork.owner == agent.me:
            held = self.held(fork.value)
            if fork.parent is None:
                self.drop(fork.value, fork.number)
            else:
                agent.call(fork.parent, _accept, (fork.number,), {})
            return self._reference._own(agent, fork.value, held)
        known: Future[Any] = Future()
        if fork.parent is None:
            known.set_result(None)
            return self._reference._of_other(agent, fork.owner, fork.value, fork.number, known)
        parent = fork.parent
        known = agent.call(fork.owner, _register, (fork.value, fork.number), {})
        known.add_done_callback(lambda _: agent.call(parent, _accept, (fork.number,), {}))
        return self._reference._of_other(agent, fork.owner, fork.value, fork.number, known)

    def told(self) -> dict[str, int]:
        """How many values and forks are known here."""
        with self._lock:
            forks = sum(len(held.forks) for held in self._held.values())
            return {"num_owner_rrefs": len(self._held), "num_forks": forks, "num_pending_children": len(self._parents)}


# What one worker asks of another.


def _accept(fork: Number) -> None:
    current().references.accept(fork)


def _register(value: Number, fork: Number) -> None:
    references = current().references
    references.keep(value, references.held(value), fork)


def dropped(value: Number, fork: Number) -> None:
    """A reference of another worker's is no more."""
    current().references.drop(value, fork)
