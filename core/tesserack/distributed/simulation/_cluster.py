"""How long collectives take, by latency and bandwidth, within machines and between them.

Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, has the formulas of
one level; of two levels, each rank of a machine carries its share between machines.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["OPS", "Cluster", "Link", "terms"]


class Link(NamedTuple):
    """Between two ranks: seconds until a message begins to arrive, bytes a second that a rank gives or takes, and
    seconds that a call costs beside that."""

    latency: float
    bandwidth: float
    overhead: float = 0.0


def _log(ranks: int) -> int:
    return math.ceil(math.log2(ranks))


def _ring(ranks: int, times: int = 1) -> tuple[float, float]:
    return times * (ranks - 1), times * (ranks - 1) / ranks


def _tree(ranks: int, times: int = 1) -> tuple[float, float]:
    return times * _log(ranks), float(times)


#: By collective, the ways in which it may be done: how many latencies, and how often its bytes pass a link. Bytes are
#: those of the whole: of all parts that are gathered, or scattered.
OPS = {
    "all_reduce": (lambda p: _ring(p, 2), lambda p: _tree(p, 2)),
    "all_gather": (_ring, lambda p: (_log(p), (p - 1) / p)),
    "reduce_scatter": (_ring, lambda p: (_log(p), (p - 1) / p)),
    "broadcast": (_tree, lambda p: (_log(p) + p - 1, 2 * (p - 1) / p)),
    "reduce": (_tree, lambda p: (_log(p) + p - 1, 2 * (p - 1) / p)),
    "gather": (lambda p: (_log(p), (p - 1) / p),),
    "scatter": (lambda p: (_log(p), (p - 1) / p),),
    "all_to_all": (_ring,),
    "barrier": (lambda p: (_log(p), 0.0),),
    "send": (lambda p: (1, 1.0),),
    "receive": (lambda p: (1, 1.0),),
}


def terms(op: str, ranks: int) -> list[tuple[float, float]]:
    """The ways of a collective over some ranks: latencies, and passes of its bytes. ``ValueError`` for another name."""
    if op not in OPS:
        raise ValueError(f"cost: expected one of {', '.join(OPS)}, got {op!r}")
    return [(0.0, 0.0)] if ranks < 2 else [way(ranks) for way in OPS[op]]


def _on(link: Link, op: str, size: float, ranks: int) -> float:
    """Seconds on one level, by the best way."""
    if ranks < 2:
        return 0.0
    return link.overhead + min(a * link.latency + b * size / link.bandwidth for a, b in terms(op, ranks))


class Cluster(NamedTuple):
    """Machines of ``per_node`` ranks: a link inside them, and one between them, of which each rank has its own.

    >>> cluster = Cluster(inside=Link(3e-6, 300e9), between=Link(10e-6, 25e9), per_node=8)
    >>> f"{cluster.seconds('all_reduce', 1 << 30, range(8)) * 1e3:.1f} ms"
    '6.3 ms'
    >>> f"{cluster.seconds('all_reduce', 1 << 30, range(4096)) * 1e3:.1f} ms"
    '17.2 ms'
    """

    inside: Link
    between: Link
    per_node: int = 8

    def seconds(self, op: str, size: float, ranks: Sequence[int]) -> float:
        """How long a collective of ``size`` bytes takes over these ranks of the world. ``ValueError`` for no name of a
        collective.

        ``size`` is of the whole: the tensor that is reduced or broadcast, all parts that are gathered or scattered,
        what a rank gives to all others.
        """
        if op not in OPS:
            raise ValueError(f"cost: expected one of {', '.join(OPS)}, got {op!r}")
        held = Counter(rank // self.per_node for rank in ranks)
        nodes, width = len(held), max(held.values(), default=0)
        if nodes <= 1:
            return _on(self.inside, op, size, width)
        if width == 1:
            return _on(self.between, op, size, nodes)
        return self._two_levels(op, size, nodes, width)

    def _two_levels(self, op: str, size: float, nodes: int, width: int) -> float:
        inside, between, share = self.inside, self.between, size / width
        if op == "all_reduce":
            around = _on(inside, "reduce_scatter", size, width) + _on(inside, "all_gather", size, width)
            return around + _on(between, op, share, nodes)
        if op == "all_to_all":  # the most goes to other machines, over each rank's own link
            ranks = nodes * width
            return _on(between, op, size * (ranks - width) / ranks, nodes) + _on(inside, op, size / nodes, width)
        if op in ("broadcast", "reduce"):
            return _on(inside, op, size, width) + _on(between, op, size, nodes)
        if op == "barrier":
            return _on(inside, op, 0, width) * 2 + _on(between, op, 0, nodes)
        if op in ("send", "receive"):
            return _on(between, op, size, 2)
        return _on(inside, op, size, width) + _on(between, op, share, nodes)
