"""Latency and bandwidth, from collectives that were timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import distributed as dist
from tesserack.distributed.simulation._cluster import Link, _on, terms

__all__ = ["Fit", "Sample", "fit", "measure"]

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
TIMED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


class Sample(NamedTuple):
    """A collective of ``size`` bytes over ``ranks`` ranks that took ``seconds``."""

    op: str
    size: int
    ranks: int
    seconds: float


class Fit(NamedTuple):
    """A link that fits samples, and by how much it misses them: each sample's share that the model is off."""

    link: Link
    errors: tuple[float, ...]

    @property
    def median_error(self) -> float:
        """Half of the samples are missed by less."""
        return sorted(self.errors)[len(self.errors) // 2]

    @property
    def worst_error(self) -> float:
        """No sample is missed by more."""
        return max(self.errors)


def fit(samples: Sequence[Sample]) -> Fit:
    """The link whose relative errors are the least, in squares. ``ValueError`` for fewer than three samples.

    >>> told = [Sample("all_gather", 8 * n, p, (p - 1) * (1e-5 + 8 * n / p / 1e9)) for n in (1, 10_000) for p in (2, 3)]
    >>> found = fit(told).link
    >>> round(found.latency * 1e6), round(found.bandwidth / 1e6)
    (10, 1000)
    """
    if len(samples) < 3:
        raise ValueError(f"fit: expected at least three samples, got {len(samples)}")
    # The way of a collective that a link would take depends on the link: begin with the first, and ask again.
    link, ways = Link(0.0, 1.0), [0] * len(samples)
    for _ in range(8):
        link = _least_squares(samples, ways)
        chosen = [_way(sample, link) for sample in samples]
        if chosen == ways:
            break
        ways = chosen
    return Fit(link, tuple(abs(_on(link, s.op, s.size, s.ranks) / s.seconds - 1) for s in samples))


def _way(sample: Sample, link: Link) -> int:
    costs = [a * link.latency + b * sample.size / link.bandwidth for a, b in terms(sample.op, sample.ranks)]
    return costs.index(min(costs))


def _least_squares(samples: Sequence[Sample], ways: Sequence[int]) -> Link:
    """Weights make errors relative. What comes out negative is none: it is left out, and the rest fitted again."""
    rows = []
    for sample, way in zip(samples, ways, strict=True):
        a, b = terms(sample.op, sample.ranks)[way]
        rows.append([a / sample.seconds, b * sample.size / sample.seconds, 1 / sample.seconds])
    matrix = ts.tensor(rows, dtype=ts.float64)
    columns = [k for k in range(3) if any(row[k] for row in rows)]
    found = [0.0, 0.0, 0.0]
    while columns:
        part = matrix[:, columns]
        scale = part.norm(dim=0)
        solved = ts.linalg.lstsq(part / scale, ts.ones(len(rows), 1, dtype=ts.float64)).solution[:, 0] / scale
        values = dict(zip(columns, solved.tolist(), strict=True))
        negative = [k for k, value in values.items() if value <= 0]
        if not negative:
            found = [values.get(k, 0.0) for k in range(3)]
            break
        columns = [k for k in columns if k not in negative]
    latency, inverse, overhead = found
    return Link(latency, 1 / inverse if inverse else float("inf"), overhead)


def measure(group: Any = None, sizes: Sequence[int] = SIZES, repeats: int = 5) -> list[Sample]:
    """Time collectives of float32 over a group, the same samples on every rank: the median of the slowest rank's times.

    Every rank of the group calls this.
    """
    ranks, found = dist.get_world_size(group), []
    for op in TIMED:
        for size in sizes:
            call = _call(op, max(1, size // (4 * ranks)), ranks, group)
            call()
            times = [_timed(call, group) for _ in range(repeats)]
            slowest = ts.tensor(times, dtype=ts.float64)
            dist.all_reduce(slowest, dist.ReduceOp.MAX, group)
            found.append(Sample(op, 4 * ranks * max(1, size // (4 * ranks)), ranks, float(slowest.median().item())))
    return found


def _timed(call: Callable[[], Any], group: Any) -> float:
    dist.barrier(group)
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _call(op: str, part: int, ranks: int, group: Any) -> Callable[[], Any]:
    whole, own = ts.zeros(part * ranks), ts.zeros(part)
    if op == "all_reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if op == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, own, group)
    if op == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(own, whole, group=group)
    return lambda: dist.broadcast(whole, group=group, group_src=0)
