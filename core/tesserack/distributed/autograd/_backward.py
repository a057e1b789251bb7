"""Backward passes over processes: each worker computes its part when the gradients that it waits for are there.

First the roots' worker marks what they lead to: along the graph here, and where that ends in tensors that came from
another worker, there too. So each knows which gradients will come. Then these go the same ways, each leaf and each
tensor of another worker's being computed once, when all that leads to it is there.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd.graph import GradientEdge, below, get_gradient_edge
from tesserack.distributed.autograd._averaged import average, reducers_of
from tesserack.distributed.autograd._contexts import Context, Place, context, within
from tesserack.distributed.rpc._current import current

__all__ = ["backward"]

_passes = itertools.count()
_ROOT = -1  # the message of roots
_ERROR = "Error on Node"


class _Target:
    """Something gradients are computed of: a leaf, or a tensor that came from a worker."""

    def __init__(self, edge: GradientEdge, leaf: Tensor | None, sender: int, place: Place | None) -> None:
        self.edge, self.leaf, self.sender, self.place = edge, leaf, sender, place
        self.sources: set[Place] = set()
        self.done = False


class _Pass:
    """One worker's part of a backward pass."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sources: dict[Place, GradientEdge] = {}  # where gradients come in
        self.grads: dict[Place, Tensor | None] = {}
        self.targets: dict[Any, _Target] = {}
        self.leaves: dict[int, tuple[Tensor, Tensor | None]] = {}  # computed, by id
        self._averaged: set[Any] = set()  # whose gradients have been taken from there

    def mark(self, part: Context, place: Place, edge: GradientEdge) -> list[_Target]:
        """Note what a source leads to; tensors of other workers that are new."""
        new = []
        with self.lock:
            if place in self.sources:
                return []
            self.sources[place] = edge
            for node in below([edge.node]):
                leaf = getattr(node, "variable", None)
                came = part.came.get(node)
                if leaf is None and came is None:
                    continue
                target = self.targets.get(node)
                if target is None:
                    sender, their = came or (-1, None)
                    at = get_gradient_edge(leaf) if leaf is not None else GradientEdge(node, 0)
                    target = self.targets[node] = _Target(at, leaf, sender, their)
                    if came:
                        new.append(target)
                target.sources.add(place)
        return new

    def ready(self, arrived: dict[Place, Tensor | None]) -> list[_Target]:
        """Targets that wait for nothing else, now that these gradients are there: to be computed by who asks."""
        with self.lock:
            self.grads.update(arrived)
            found = [t for t in self.targets.values() if not t.done and t.sources <= self.grads.keys()]
            for target in found:
                target.done = True
            return found

    def averaging(self, found: list[tuple[Tensor, Tensor | None]]) -> list[tuple[list[Tensor], list[Any]]]:
        """Take gradients of leaves that are averaged over ranks out of these, until all of a module's are there: the
        module's parameters, and what came to them."""
        with self.lock:
            self.leaves.update((id(leaf), (leaf, grad)) for leaf, grad in found)
            wanted = [target.leaf for target in self.targets.values() if target.leaf is not None]
            full = []
            for reducer, ids in reducers_of(wanted).items():
                found[:] = [pair for pair in found if id(pair[0]) not in ids]
                if reducer not in self._averaged and ids <= self.leaves.keys():
                    self._averaged.add(reducer)
                    came = [self.leaves[key] for key in ids if self.leaves[key][1] is not None]
                    full.append((reducer.parameters, came))
            return full

    def computed(self, targets: list[_Target]) -> Sequence[Tensor | None]:
        """Their gradients."""
        places = sorted({place for target in targets for place in target.sources})
        given = [(place, grad) for place in places if (grad := self.grads[place]) is not None]
        if not given:
            return [None] * len(targets)
        with self.lock:  # one at a time on a graph
            return ts.autograd.grad(
                [self.sources[place] for place, _ in given],
                [target.edge for target in targets],
                [grad for _, grad in given],
                retain_graph=True,
                allow_unused=True,
            )


def backward(context_id: int, roots: Sequence[Tensor], retain_graph: bool = False) -> None:
    """Gradients of all leaves that ``roots``, scalars of this process, depend on, in whatever worker these are.

    They are not in ``grad`` but in the context: :func:`get_gradients` gives each worker's. Unless ``retain_graph``,
    this is the context's last backward pass.

    Raises:
        RuntimeError: for roots that are no scalars or want no gradients, and for a further pass.
    """
    part = context(context_id)
    if not roots:
        raise RuntimeError("No tensors provided for gradient computation.")
    for root in roots:
        if not root.requires_grad:
            raise RuntimeError("requires_grad not set on root")
        if root.numel() != 1:
            raise RuntimeError(f"root of shape {tuple(root.shape)} is not a scalar, all roots need to be scalar")
    with part.lock:
        if part.spent:
            raise RuntimeError(
                "Trying to backward through the graph a second time: call backward with retain_graph=True before"
            )
        part.spent = not retain_graph
    key = (current().me.id, next(_passes))
    places = {Place(_ROOT, k): get_gradient_edge(root) for k, root in enumerate(roots)}
    try:
        _mark_here(part, key, places)
        _advance(part, key, {Place(_ROOT, k): ts.ones_like(root) for k, root in enumerate(roots)})
    finally:
        _end(context_id, key)


def _pass_of(part: Context, key: Any) -> _Pass:
    with part.lock:
        found: _Pass = part.passes.setdefault(key, _Pass())
        return found


def _at(worker: int, func: Any, *args: Any) -> Any:
    """A call that belongs to no context."""
    agent = current()
    with within(None):
        return agent.call(agent.meeting.worker(worker), func, args, {})


def _mark_here(part: Context, key: Any, places: dict[Place, GradientEdge]) -> None:
    """Note what sources lead to here, and at other workers."""
    mine = _pass_of(part, key)
    by_sender: dict[int, list[Place]] = {}
    for place, edge in places.items():
        for target in mine.mark(part, place, edge):
            by_sender.setdefault(target.sender, []).append(target.place)  # type: ignore[arg-type]
    for answer in [_at(sender, _mark, part.number, key, wanted) for sender, wanted in by_sender.items()]:
        answer.wait()


def _advance(part: Context, key: Any, arrived: dict[Place, Tensor | None]) -> None:
    """Compute what is ready with these gradients, and send on what belongs to others."""
    mine = _pass_of(part, key)
    targets = mine.ready(arrived)
    by_sender: dict[int, dict[Place, Tensor | None]] = {}
    leaves: list[tuple[Tensor, Tensor | None]] = []
    for target, grad in zip(targets, mine.computed(targets), strict=True):
        if target.place is not None:
            by_sender.setdefault(target.sender, {})[target.place] = grad
        elif target.leaf is not None:
            leaves.append((target.leaf, grad))
    full = mine.averaging(leaves)
    for leaf, grad in leaves:
        if grad is not None:
            part.add(leaf, grad)
    answers = [_at(sender, _deliver, part.number, key, grads) for sender, grads in by_sender.items()]
    for parameters, came in full:  # other ranks may need what was sent before they come to it
        average(part, parameters, came)
    for answer in answers:
        answer.wait()


# What one worker asks of another.


def _mark(number: int, key: Any, places: list[Place]) -> None:
    part = context(number)
    with part.lock:
        edges = {place: part.sent[place] for place in places}
    _mark_here(part, key, edges)


def _deliver(number: int, key: Any, grads: dict[Place, Tensor | None]) -> None:
    try:
        _advance(context(number), key, grads)
    except Exception as error:
        told = str(error)
        raise RuntimeError(told if _ERROR in told else f"{_ERROR} {current().me.id}: {told}") from error


def _end(number: int, key: Any) -> None:
    """A pass is over, everywhere that it was."""
    part = context(number)
    with part.lock:
        if part.passes.pop(key, None) is None:
            return
        peers = {*part.peers}
    for peer in peers - {current().me.id}:
        _at(peer, _end_quietly, number, key)


def _end_quietly(number: int, key: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the context is gone
        _end(number, key)
