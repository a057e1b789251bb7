"""From what a sampler says to a batch: the part of a loader that its workers run."""

from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tesserack as ts
from tesserack.utils.data.collate import default_collate
from tesserack.utils.data.dataset import Subset, TensorDataset

__all__ = ["END", "Fetcher", "rows_of_tensors"]

END: Any = object()  # what fetching from a stream gives after its last batch

_Fetch = Callable[[Any], Any]


@dataclass(frozen=True)
class Fetcher:
    """What there is to fetch, and how samples are joined: a stream, or samples by index; ``batched`` or one by one."""

    dataset: Any
    collate: Callable[[Any], Any]
    batched: bool
    streams: bool = False
    batch_size: int | None = None
    drop_last: bool = False
    shared_seed: int | None = None  # of datapipes, the same for all workers

    def _prepared(self) -> Any:
        """The datapipe with the seeds of its parts, and in a worker its share of the samples."""
        from tesserack.utils.data import graph_settings
        from tesserack.utils.data.datapipes.iter.order import SHARDING_PRIORITIES
        from tesserack.utils.data.worker_info import get_worker_info

        info, pipe = get_worker_info(), self.dataset
        if info is not None:
            pipe = copy.deepcopy(pipe)  # threads share the dataset, and a pipe has one iterator at a time
            group = SHARDING_PRIORITIES.MULTIPROCESSING
            graph_settings.apply_sharding(pipe, info.num_workers, info.id, group)
        seed = self.shared_seed if info is None else info.seed - info.id
        return graph_settings.apply_random_seed(pipe, ts.Generator().manual_seed((seed or 0) & 0x7FFF_FFFF_FFFF_FFFF))

    def start(self) -> _Fetch:
        """A function from a task, the indices of a batch, to the batch; of a stream every task is the next batch.

        ``RuntimeError`` where a dataset raises ``StopIteration``, which would pass for the end.
        """
        fetch = self._stream() if self.streams else self._indexed()

        def fetch_or_tell(task: Any) -> Any:
            try:
                return fetch(task)
            except StopIteration as error:
                name = type(self.dataset).__name__
                raise RuntimeError(f"DataLoader: the dataset {name}, or collate_fn, raised StopIteration") from error

        return fetch_or_tell

    def _indexed(self) -> _Fetch:
        dataset, collate = self.dataset, self.collate
        if not self.batched:
            return lambda index: collate(dataset[index])
        if collate is default_collate and rows_of_tensors(dataset):
            return lambda indices: _take_rows(dataset, indices)
        several = getattr(dataset, "__getitems__", None)
        if several is not None:
            return lambda indices: collate(several(indices))
        return lambda indices: collate([dataset[i] for i in indices])

    def _stream(self) -> _Fetch:
        samples = iter(self.dataset if self.shared_seed is None else self._prepared())
        size = self.batch_size

        def fetch(_: Any) -> Any:
            if size is None:
                sample = next(samples, END)
                return END if sample is END else self.collate(sample)
            batch = list(itertools.islice(samples, size))
            if not batch or (self.drop_last and len(batch) < size):
                return END
            return self.collate(batch)

        return fetch


def rows_of_tensors(dataset: Any) -> bool:
    """Whether a batch of this dataset is rows of whole tensors, taken without running any of the user's code."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return type(dataset) is TensorDataset


def _take_rows(dataset: Any, indices: Any) -> list[Any]:
    """The batch that default_collate makes of these rows, by one index_select per tensor."""
    while type(dataset) is Subset:
        indices = [dataset.indices[i] for i in indices]
        dataset = dataset.dataset
    size = len(dataset)
    rows = ts.tensor([i + size if i < 0 else i for i in map(operator.index, indices)], dtype=ts.int64)
    return [tensor.index_select(0, rows.to(tensor.device)) for tensor in dataset.tensors]
