"""One rank of a world that is not there, on a clock that counts its computation and what collectives cost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import tesserack as ts
from tesserack.distributed import _fake, _world
from tesserack.distributed._stores import HashStore
from tesserack.distributed.simulation._cluster import Cluster

__all__ = ["Report", "simulate"]


@dataclass
class Report:
    """What a simulated rank did, in seconds of its clock and bytes."""

    ranks: int
    compute: float = 0.0  #: seconds outside of collectives
    exposed: float = 0.0  #: seconds that the program waits for collectives
    communication: float = 0.0  #: seconds of all collectives, hidden ones too
    peak_memory: int = 0  #: bytes held at most on the device, beside what was there before
    calls: dict[str, int] = field(default_factory=dict)  #: collectives by name
    moved: dict[str, int] = field(default_factory=dict)  #: bytes by name

    @property
    def seconds(self) -> float:
        """From the beginning to the end."""
        return self.compute + self.exposed

    @property
    def hidden(self) -> float:
        """The share of communication that goes on beside computation."""
        return 1 - self.exposed / self.communication if self.communication else 1.0

    def __str__(self) -> str:
        lines = [
            f"rank of {self.ranks}: {self.seconds:.4g} s, of which {self.compute:.4g} s compute and "
            f"{self.exposed:.4g} s wait; {self.communication:.4g} s of communication, {self.hidden:.0%} hidden; "
            f"{self.peak_memory / 2**20:.1f} MiB at most"
        ]
        lines += [f"  {op}: {self.calls[op]} of {self.moved[op] / 2**20:.2f} MiB in all" for op in self.calls]
        return "\n".join(lines)


class _Clock:
    """The rank's time: its computation, and one collective after another beside it."""

    def __init__(self, cluster: Cluster, report: Report, computed: Callable[[], float]) -> None:
        self._cluster, self._report, self._computed = cluster, report, computed
        self._seen = computed()
        self.now = self._free = 0.0

    def advance(self) -> None:
        """Take in what was computed since the last look."""
        seen = self._computed()
        self._report.compute += seen - self._seen
        self.now += seen - self._seen
        self._seen = seen

    def skip(self) -> None:
        """What was done since the last look was done for the simulation."""
        self._seen = self._computed()

    def begin(self, op: str, size: int, ranks: tuple[int, ...]) -> float:
        """A collective is called; returns when it ends."""
        seconds, report = self._cluster.seconds(op, size, ranks), self._report
        report.communication += seconds
        report.calls[op] = report.calls.get(op, 0) + 1
        report.moved[op] = report.moved.get(op, 0) + size
        self._free = max(self.now, self._free) + seconds
        return self._free

    def wait(self, end: float) -> None:
        """Until a collective has ended."""
        if end > self.now:
            self._report.exposed += end - self.now
            self.now = end


@contextlib.contextmanager
def simulate(
    cluster: Cluster,
    ranks: int,
    rank: int = 0,
    *,
    device: Any = None,
    flops: float | None = None,
    slowdown: float = 1.0,
) -> Iterator[Report]:
    """Within, this process is rank ``rank`` of ``ranks``, and the others are not there.

    Collectives give shapes, not values (see the backend ``"fake"``), and take what ``cluster`` says; the rest takes
    the time that it takes here, times ``slowdown``, or its products at ``flops`` operations a second: then tensors may
    be on ``meta``. The memory is that of ``device`` (by default the default one; on ``meta`` it is not known). Raises
    ``ValueError`` where a group is there already.

    >>> import tesserack as ts
    >>> from tesserack.distributed.simulation import Cluster, Link
    >>> cluster = Cluster(Link(3e-6, 300e9), Link(10e-6, 25e9), per_node=8)
    >>> with simulate(cluster, ranks=4096) as report:
    ...     model = ts.nn.parallel.DistributedDataParallel(ts.nn.Linear(1000, 1000))
    ...     model(ts.ones(8, 1000)).sum().backward()
    >>> report.moved["all_reduce"]
    4004000
    """
    if _world.is_initialized():
        raise ValueError("simulate: expected no process group, got one; call destroy_process_group before")
    if not 0 <= rank < ranks:
        raise ValueError(f"simulate: expected a rank below {ranks}, got {rank}")
    report = Report(ranks)
    place = ts.device(device) if device is not None else ts.get_default_device()
    with contextlib.ExitStack() as stack:
        computed = stack.enter_context(_computed(flops, slowdown))
        clock = _Clock(cluster, report, computed)
        stack.callback(setattr, _fake, "clock", _fake.clock)
        _fake.clock = clock
        _world.init_process_group("fake", rank=rank, world_size=ranks, store=HashStore(), timeout=timedelta(hours=1))
        stack.callback(_world.destroy_process_group)
        measured = place.type != "meta"
        if measured:
            # Memory kept from before is in larger pieces than a rank would ask for, and counts as they are.
            ts.empty_cache(place)
            before = ts.memory_stats(place)["allocated"]
            ts.reset_peak_memory_stats(place)
        clock.skip()
        yield report
        clock.advance()
        if measured:
            report.peak_memory = ts.memory_stats(place)["allocated_peak"] - before


@contextlib.contextmanager
def _computed(flops: float | None, slowdown: float) -> Iterator[Callable[[], float]]:
    """Seconds of computation so far."""
    if flops is None:
        yield lambda: time.perf_counter() * slowdown
        return
    from tesserack.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        yield lambda: counter.get_total_flops() / flops * slowdown
