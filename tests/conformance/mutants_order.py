"""Communicators of cards whose streams run late: one in the order of its stream, and some beside it."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from late_backend import Late, Stream
from mutants_ranks import Declined, Ranks
from tesserack.testing.conformance.direct import ranks


class Asked(Exception):
    """A collective has said what it brings."""


class LateRanks(Ranks, Late):
    """Two devices. A collective is two pieces of work for its stream: what is brought, and what all get."""

    def __init__(self, name: str, own: bool, devices: int = 2, holds: bool = True) -> None:
        Late.__init__(self, name, own, devices, holds)
        self.make_table()
        self.brought: dict[tuple[int, int], dict[int, Any]] = {}
        self.bringing = threading.Lock()
        self.aside: dict[int, Stream] = {}

    def collective_(self, ctx: Any, comm: int, given: Any) -> int:
        c = self.copied(given.contents)
        meeting, rank, size = self.members[comm]
        try:
            if c.reduction == ranks.AVERAGE and c.kind in (1, 2, 4):
                self.join([self.at(None, 0, c, 0)], c)  # which declines what has no meaning
        except Declined:
            return ranks.DECLINED
        run, key = getattr(self, ranks.KINDS[c.kind]), (id(meeting), c.sequence)
        with self.bringing:
            others = self.brought.setdefault(key, {})
        stream = ctypes.cast(c.stream, ctypes.py_object).value if c.stream else None

        def bring() -> None:
            def tell(mine: Any) -> list[Any]:
                others[rank] = mine
                raise Asked

            with contextlib.suppress(Asked):
                run(c, tell, rank, size)

        def get() -> None:
            run(c, lambda mine: [others[k] for k in range(size)], rank, size)

        self.give(self.stream(rank, stream), rank, bring, get, lambda: len(others) == size)
        return 0

    def copied(self, c: Any) -> Any:
        """What was given, to be kept beyond the call, with its memory."""
        values = {name: getattr(c, name) for name, _ in c._fields_}
        counts = {name: values[name][:2] if values[name] else None for name in ("counts", "gotten")}
        blocks = [ctypes.cast(handle, ctypes.py_object).value for handle in (c.src, c.dst) if handle]
        return SimpleNamespace(**(values | counts), blocks=blocks)

    def give(
        self, stream: Stream, rank: int, bring: Callable[[], None], get: Callable[[], None], ready: Callable[[], bool]
    ) -> None:
        stream.put(bring)
        stream.put(get, ready)


class BeforeTheStream(LateRanks):
    """Reads what it brings as soon as it is called."""

    def give(
        self, stream: Stream, rank: int, bring: Callable[[], None], get: Callable[[], None], ready: Callable[[], bool]
    ) -> None:
        bring()
        stream.put(get, ready)


class BesideTheStream(LateRanks):
    """Waits for what the stream did before, and then goes on by itself: the stream does not wait for it."""

    def give(
        self, stream: Stream, rank: int, bring: Callable[[], None], get: Callable[[], None], ready: Callable[[], bool]
    ) -> None:
        stream.put(bring)
        self.beside(stream, rank).put(get, ready)

    def beside(self, stream: Stream, rank: int) -> Stream:
        """The communicator's own stream, which goes on when another has come this far."""
        with self.bringing:
            aside = self.aside.setdefault(rank, Stream(self.scheduler))
        come = threading.Event()
        stream.put(come.set)
        aside.put(lambda: None, come.is_set)
        return aside

    def synchronize(self, device: int, stream: Any) -> None:
        super().synchronize(device, stream)
        if device in self.aside:
            self.aside[device].wait()


class LiveSources(LateRanks):
    """Each rank reads where the others' sources lie, the last one a while later, and goes on when it has its result."""

    def source(self, c: Any, count: int) -> Any:
        return self.at(c.src, c.src_offset, c, count)

    def give(
        self, stream: Stream, rank: int, bring: Callable[[], None], get: Callable[[], None], ready: Callable[[], bool]
    ) -> None:
        begun: list[float] = []

        def comes() -> bool:
            if ready() and not begun:
                begun.append(time.monotonic())
            return bool(begun) and time.monotonic() - begun[0] > 0.01 * rank

        super().give(stream, rank, bring, get, comes)


class OnTheDefaultStream(LateRanks):
    """Works there, whichever stream is named."""

    def give(
        self, stream: Stream, rank: int, bring: Callable[[], None], get: Callable[[], None], ready: Callable[[], bool]
    ) -> None:
        super().give(self.default[rank], rank, bring, get, ready)


latejoined = LateRanks("latejoined", own=True)
beforestream = BeforeTheStream("beforestream", own=True)
besidestream = BesideTheStream("besidestream", own=True)
livesources = LiveSources("livesources", own=True)
defaultstream = OnTheDefaultStream("defaultstream", own=True)
