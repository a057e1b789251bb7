"""How large DistributedDataParallel's buckets should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tesserack.distributed.simulation._cluster import Cluster

__all__ = ["BucketChoice", "choose_bucket"]

MEGABYTES = (1, 2, 4, 8, 16, 25, 50, 100, 200, 400)


class BucketChoice(NamedTuple):
    """``bucket_cap_mb`` to be given, and seconds of a backward pass, communication and all, by each size tried."""

    bucket_cap_mb: int
    seconds: dict[int, float]


def choose_bucket(
    module: Any, cluster: Cluster, ranks: int, backward_seconds: float, tried: Sequence[int] = MEGABYTES
) -> BucketChoice:
    """The size of buckets by which a backward pass of ``backward_seconds`` ends first, its reductions over ``ranks``
    ranks overlapping it. Gradients are taken to come at a pace of elements. ``ValueError`` for a module without
    parameters that require a gradient.

    >>> import tesserack as ts
    >>> model = ts.nn.Sequential(*[ts.nn.Linear(1024, 1024, device="meta") for _ in range(8)])
    >>> from tesserack.distributed.simulation import Link
    >>> slow = Cluster(Link(3e-6, 300e9), Link(2e-3, 25e9))  # a latency of 2 ms: few, large buckets
    >>> choose_bucket(model, slow, 64, 0.01).bucket_cap_mb
    50
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("choose_bucket: expected a module with parameters that require a gradient, got none")
    found = {size: _ends(parameters, cluster, ranks, backward_seconds, size << 20) for size in tried}
    return BucketChoice(min(found, key=lambda size: (found[size], size)), found)


def _ends(parameters: Sequence[Any], cluster: Cluster, ranks: int, backward: float, most: int) -> float:
    from tesserack.nn.parallel._buckets import FIRST_BUCKET_BYTES, assign_buckets

    elements = sum(p.numel() for p in parameters) or 1
    ready = free = 0.0
    for bucket in assign_buckets(parameters, (min(FIRST_BUCKET_BYTES, most), most)):
        ready += backward * sum(p.numel() for p in bucket) / elements
        size = sum(p.numel() * p.element_size() for p in bucket)
        free = max(ready, free) + cluster.seconds("all_reduce", size, range(ranks))
    return max(free, backward)
