"""Each process its own part of a dataset."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import tesserack as ts
from tesserack.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """The indices of process ``rank`` out of ``num_replicas``: every ``num_replicas``-th of one common order.

    Without these two, they are those of the process group. The order is shuffled by ``seed + epoch``; call
    :meth:`set_epoch` before each epoch. The end is filled up with repeated indices so that all parts are equally long,
    or cut off with ``drop_last``.

    >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            from tesserack import distributed as dist

            if not dist.is_initialized():
                raise ValueError("DistributedSampler: give num_replicas and rank, or call init_process_group first")
            num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
            rank = dist.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"DistributedSampler: Invalid rank {rank}, expected one from 0 to {num_replicas - 1}")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        size = len(dataset)
        self.num_samples = size // num_replicas if drop_last else math.ceil(size / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        order = list(range(size))
        if self.shuffle:
            generator = ts.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = ts.randperm(size, generator=generator).tolist()
        endless = itertools.cycle(order)
        return itertools.islice(endless, self.rank, self.total_size, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose another order; every process must set the same epoch."""
        self.epoch = epoch
