"""Samplers that go on where another number of ranks stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tesserack as ts
from tesserack.utils.data.distributed import DistributedSampler

__all__ = ["ElasticDistributedSampler"]


class ElasticDistributedSampler(DistributedSampler):
    """Of a dataset's samples from ``start_index`` on, this rank's, in an order that epochs change."""

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, start_index: int = 0
    ) -> None:
        super().__init__(dataset, num_replicas, rank)
        if start_index >= len(dataset):
            raise ValueError(f"Start index {start_index} should be less than dataset size {len(dataset)}")
        self.start_index = start_index
        self.num_samples = math.ceil((len(dataset) - start_index) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        drawn = ts.Generator().manual_seed(self.epoch)
        order = ts.randperm(len(self.dataset) - self.start_index, generator=drawn)
        indices = (order + self.start_index).tolist()
        indices += indices[: self.total_size - len(indices)]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
