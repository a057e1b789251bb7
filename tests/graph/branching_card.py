"""A card whose recordings span streams, and whose replays do their kernels in any order that the events permit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from recording_card import RecordingCard
from tesserack.testing import seeds

__all__ = ["BranchingCard", "Node", "Tape"]


class Node:
    """Work of a stream, behind other work."""

    def __init__(self, op: str, stream: Any, item: Any, behind: Iterable[Node]):
        self.op, self.stream, self.item, self.behind = op, stream, item, frozenset(behind)

    def ancestors(self) -> set[Node]:
        """All that it comes behind."""
        return with_ancestors(self.behind)


def with_ancestors(nodes: Iterable[Node]) -> set[Node]:
    """These, and all that they come behind."""
    found: set[Node] = set()
    left = list(nodes)
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left.extend(node.behind)
    return found


class Tape:
    """What one stream of a recording is given; all of a recording have ``nodes`` in common."""

    def __init__(self, card: BranchingCard, stream: Any, nodes: list[Node], ends: frozenset[Node] = frozenset()):
        self.card, self.stream, self.nodes, self.ends = card, stream, nodes, ends

    def append(self, item: Any) -> None:
        node = Node(self.card.now, self.stream, item, self.ends)
        self.nodes.append(node)
        self.ends = frozenset({node})

    def __iter__(self) -> Iterator[Any]:
        """The work, in an order that no event forbids: of what is ready the last first, or whatever chance says."""
        left, done = list(self.nodes), set[Node]()
        last_first = self.card.chance.random() < 0.5
        while left:
            ready = [node for node in left if node.behind <= done]
            node = ready[-1] if last_first else self.card.chance.choice(ready)
            left.remove(node)
            done.add(node)
            yield node.item

    def clear(self) -> None:
        self.nodes.clear()


class BranchingCard(RecordingCard):
    """``drops``: the wait of this number, counted from 0, is forgotten."""

    capture_streams = True

    def forget(self) -> None:
        super().forget()
        self.now = ""  # the kernel that runs
        self.waits, self.drops = 0, -1
        self.kernels: list[Node] = []  # of the last recording
        self.chance = seeds.generator("orders of replays")

    def _noted(self, op: str, function: Any) -> Any:
        inner = super()._noted(op, function)

        def kernel(*args: Any, **fields: Any) -> Any:
            self.now = op
            return inner(*args, **fields)

        return kernel

    def capture_begin(self, device: int, stream: Any) -> None:
        super().capture_begin(device, stream)
        stream.recording = Tape(self, stream, [])

    def event_record(self, device: int, event: Any, stream: Any) -> None:
        chosen = self.stream(device, stream)
        event.pop("ends", None)
        if chosen.recording is None:
            super().event_record(device, event, stream)
            return
        self.fails("record")
        event["ends"] = chosen.recording.ends, chosen.recording.nodes

    def stream_wait_event(self, device: int, stream: Any, event: Any) -> None:
        chosen = self.stream(device, stream)
        if "ends" not in event:
            assert chosen.recording is None, "a wait for what is not recorded"
            super().stream_wait_event(device, stream, event)
            return
        self.fails("wait")
        ends, nodes = event["ends"]
        if chosen.recording is None:
            chosen.recording = Tape(self, chosen, nodes)
            self.noted[id(chosen)] = set()
            self.now = "enter"
            chosen.recording.ends = ends
            chosen.recording.append((lambda: True, lambda: None))
        assert chosen.recording.nodes is nodes, "a wait that merges two recordings"
        self.waits += 1
        if self.waits - 1 != self.drops:
            chosen.recording.ends |= ends

    def capture_end(self, device: int, stream: Any) -> Any:
        tape = stream.recording
        for one in [s for s in self.streams if s is not stream and s.recording is not None]:
            if one.recording.nodes is tape.nodes:
                one.recording = None
                self.noted[id(stream)] |= self.noted.pop(id(one))
        late = set(tape.nodes) - with_ancestors(tape.ends)
        if late:
            stream.recording = None
            raise RuntimeError(f"{len(late)} kernels of streams that the first does not wait for")
        self.kernels = [node for node in tape.nodes if node.op != "enter"]
        return super().capture_end(device, stream)
