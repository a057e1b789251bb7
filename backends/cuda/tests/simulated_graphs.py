"""Capture of streams and graphs, for the simulated driver: what cannot be captured ends the capture, as CUDA says.

A graph is done in another order than it was written down in, wherever nothing of it says which comes first.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulated_errors import INVALID_VALUE, SimulatedError

if TYPE_CHECKING:
    from simulated import Stream

__all__ = ["Capture", "Graphs", "Node"]

UNSUPPORTED, INVALIDATED, UNJOINED, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = 900, 901, 904, 906, 907, 908
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


class Node:
    """An operation, behind others. The entry of a stream into a capture is one, too, which does nothing."""

    def __init__(self, number: int, stream: Stream, operation: Callable[[], None], behind: Iterable[Node]):
        self.number, self.stream, self.operation, self.behind = number, stream, operation, frozenset(behind)
        self.enters = False

    def ancestors(self) -> set[Node]:
        """All that it comes behind."""
        return _with_ancestors(self.behind)


def _with_ancestors(nodes: Iterable[Node]) -> set[Node]:
    found: set[Node] = set()
    left = list(nodes)
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left.extend(node.behind)
    return found


def other_order(nodes: list[Node], number: int) -> list[Node]:
    """An order that a device may choose: of what is ready the last first, or every other time whatever chance says."""
    chance = random.Random(number) if number % 2 else None
    left, done, order = list(nodes), set[Node](), list[Node]()
    while left:
        ready = [node for node in left if node.behind <= done]
        node = chance.choice(ready) if chance else ready[-1]
        left.remove(node)
        done.add(node)
        order.append(node)
    return order


class Capture:
    """What the streams of one capture were given, and behind what."""

    def __init__(self, origin: Stream, mode: int):
        self.origin, self.mode, self.thread = origin, mode, threading.get_ident()
        self.nodes: list[Node] = []
        self.ends: dict[Stream, frozenset[Node]] = {origin: frozenset()}  # what comes next there is behind these
        self.why = ""  # it is invalid

    def put(self, stream: Stream, operation: Callable[[], None]) -> int:
        if self.why:
            raise SimulatedError(INVALIDATED, f"the capture is invalid since {self.why}")
        node = Node(len(self.nodes), stream, operation, self.ends[stream])
        self.nodes.append(node)
        self.ends[stream] = frozenset({node})
        return len(self.nodes)

    def join(self, stream: Stream, ends: frozenset[Node]) -> None:
        """A stream waits for an event of the capture."""
        if self.why:
            raise SimulatedError(INVALIDATED, f"the capture is invalid since {self.why}")
        enters = stream not in self.ends
        self.ends[stream] = self.ends.get(stream, frozenset()) | ends
        stream.capture = self
        if enters:
            self.put(stream, lambda: None)
            self.nodes[-1].enters = True

    def broken(self, why: str) -> SimulatedError:
        """Ends the capture, which streamEndCapture tells, too."""
        self.why = self.why or why
        return SimulatedError(UNSUPPORTED, f"{why} is not permitted when stream is capturing")

    def late(self) -> set[Node]:
        """What the origin does not wait for."""
        return set(self.nodes) - _with_ancestors(self.ends[self.origin])


class Graphs:
    """Captures and graphs of a simulated driver, whose streams have ``capture``."""

    _stream: Any
    _numbers: Any
    _lock: Any

    def __init_subclass__(cls) -> None:
        cls._modes = threading.local()
        super().__init_subclass__()

    _modes: threading.local
    replays = 0  # graphs that were launched

    @property
    def captures(self) -> list[Capture]:
        return self.__dict__.setdefault("_captures", [])

    @property
    def graphs(self) -> dict[int, Any]:
        """Graphs, and executable ones as ("exec", device, nodes)."""
        return self.__dict__.setdefault("_graphs", {})

    @property
    def captured_events(self) -> dict[int, tuple[Capture, frozenset[Node]]]:
        return self.__dict__.setdefault("_captured_events", {})

    def exchange_capture_mode(self, mode: int) -> int:
        before = getattr(self._modes, "mode", GLOBAL)
        self._modes.mode = mode
        return before

    def unsafe(self, what: str) -> None:
        """A call that CUDA prohibits while a capture is under way, by the mode of capture and thread."""
        mode = getattr(self._modes, "mode", GLOBAL)
        for capture in self.captures:
            own = capture.thread == threading.get_ident() and capture.mode != RELAXED
            if mode != RELAXED and (own or (mode == GLOBAL and capture.mode == GLOBAL)):
                raise capture.broken(what)

    def legacy(self) -> None:
        """Work on the legacy default stream, which would wait for captured ones."""
        for capture in self.captures:
            if not capture.origin.blocking:
                continue
            capture.why = capture.why or "the legacy stream was used"
            raise SimulatedError(IMPLICIT, "the legacy stream depends on a capturing blocking stream")

    def recorded(self, event: int, stream: Stream) -> None:
        self.captured_events.pop(event, None)
        if stream.capture is not None:
            self.captured_events[event] = stream.capture, stream.capture.ends[stream]

    def joined(self, waiting: Stream, event: int) -> bool:
        """A wait for an event of a capture, which the waiting stream becomes part of. False for another event."""
        if event not in self.captured_events:
            if waiting.capture is not None:
                raise waiting.capture.broken("a dependency on work outside the capture")
            return False
        capture, ends = self.captured_events[event]
        if waiting.capture not in (None, capture) or capture not in self.captures:
            raise capture.broken("a wait that merges two captures")
        capture.join(waiting, ends)
        return True

    def _outside(self, event: int) -> Any:
        if event in self.captured_events and self.captured_events[event][0] in self.captures:
            raise SimulatedError(
                CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"
            )
        return self._event(event)  # type: ignore[attr-defined]

    def streamIsCapturing(self, handle: int) -> bool:
        return bool(handle) and self._stream(handle).capture is not None

    def streamBeginCapture(self, handle: int, mode: int = RELAXED) -> None:
        with self._lock:
            if not handle:
                raise SimulatedError(UNSUPPORTED, "the legacy stream cannot be captured")
            stream = self._stream(handle)
            if stream.capture is not None or mode not in (GLOBAL, THREAD_LOCAL, RELAXED):
                raise SimulatedError(INVALID_VALUE, "cudaStreamBeginCapture")
            stream.capture = Capture(stream, mode)
            self.captures.append(stream.capture)

    def streamEndCapture(self, handle: int) -> int:
        with self._lock:
            stream = self._stream(handle)
            capture = stream.capture
            if capture is None or capture.origin is not stream:
                raise SimulatedError(INVALID_VALUE, "cudaStreamEndCapture of a stream where no capture began")
            if capture.mode != RELAXED and capture.thread != threading.get_ident():
                raise SimulatedError(WRONG_THREAD, "the capture was begun in another thread")
            late = capture.late()
            for one in capture.ends:
                one.capture = None
            self.captures.remove(capture)
            if capture.why:
                raise SimulatedError(INVALIDATED, f"the capture was made invalid by {capture.why}")
            if late:
                raise SimulatedError(UNJOINED, "a captured stream was not joined to the origin")
            number = next(self._numbers)
            self.graphs[number] = "graph", capture.origin.device, capture.nodes
            return int(number)

    def graphInstantiate(self, graph: int) -> int:
        with self._lock:
            kind, device, nodes = self.graphs[graph]
            assert kind == "graph"
            number = next(self._numbers)
            self.graphs[number] = "exec", device, nodes
            return int(number)

    def graphDestroy(self, graph: int) -> None:
        with self._lock:
            assert self.graphs.pop(graph)[0] == "graph"

    def graphDebugDotPrint(self, graph: int, path: str, flags: int) -> None:
        kind, _, nodes = self.graphs[graph]
        assert kind == "graph"
        Path(path).write_text(f"digraph {{ {len(nodes)} }}")

    def graphExecDestroy(self, graph: int) -> None:
        with self._lock:
            self.unsafe("cudaGraphExecDestroy")
            assert self.graphs.pop(graph)[0] == "exec"

    def graphLaunch(self, graph: int, handle: int) -> None:
        with self._lock:
            kind, device, nodes = self.graphs[graph]
            assert kind == "exec"
            stream = self._stream(handle)
            if stream.device != device:
                raise SimulatedError(INVALID_VALUE, "a graph of another device")
            self.replays += 1
            for node in other_order(nodes, self.replays):
                stream.put(node.operation)
