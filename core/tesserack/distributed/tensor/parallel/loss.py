"""The loss of logits whose classes are cut, without bringing them together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tesserack.distributed.tensor._dispatch import implicit

__all__ = ["loss_parallel"]


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """Within it ``cross_entropy`` of a DTensor that is cut along its classes is computed on the parts: what each rank
    sends is a number for each sample. ``backward`` belongs within it, too. The target may be a plain tensor, the same
    on every rank.

    >>> import tesserack as ts
    >>> from tesserack.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> mesh = init_device_mesh("cpu", (1,))
    >>> logits = distribute_tensor(ts.zeros(2, 4, requires_grad=True), mesh, [Shard(1)])
    >>> with loss_parallel():
    ...     loss = ts.nn.functional.cross_entropy(logits, ts.tensor([0, 3]))
    ...     loss.backward()
    >>> loss.placements, round(loss.item(), 4), logits.grad.placements
    ((Replicate(),), 1.3863, (Shard(dim=1),))
    >>> ts.distributed.destroy_process_group()
    """
    implicit.loss += 1
    try:
        yield
    finally:
        implicit.loss -= 1
