"""Models and loaders of one process, for a rank among others."""

from __future__ import annotations

from typing import Any

__all__ = ["prepare_data_loader", "prepare_model"]


def prepare_model(model: Any, parallel_strategy_kwargs: dict[str, Any] | None = None) -> Any:
    """The model as ``DistributedDataParallel``; in a world of one itself."""
    from tesserack import distributed as dist
    from tesserack import nn

    if dist.get_world_size() == 1:
        return model
    return nn.parallel.DistributedDataParallel(model, **(parallel_strategy_kwargs or {}))


def prepare_data_loader(loader: Any) -> Any:
    """A loader of this rank's part of the samples, shuffled if the given one shuffles: ``loader.sampler.set_epoch``
    at each epoch. ``ValueError`` of one with batches of its own making."""
    from tesserack import distributed as dist
    from tesserack.utils import data

    if dist.get_world_size() == 1 or isinstance(loader.sampler, data.distributed.DistributedSampler):
        return loader
    if loader.batch_size is None or isinstance(loader.dataset, data.IterableDataset):
        raise ValueError("prepare_data_loader: expected a loader with a batch_size over samples that have numbers")
    shuffled = isinstance(loader.sampler, data.RandomSampler)
    return data.DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=data.distributed.DistributedSampler(loader.dataset, shuffle=shuffled, drop_last=loader.drop_last),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
    )
