"""The loader: a dataset, an order and a way to join samples make batches."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tesserack as ts
from tesserack.utils.data.collate import default_collate, default_convert
from tesserack.utils.data.dataset import IterableDataset, Subset, TensorDataset
from tesserack.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from tesserack.utils.data.workers import WorkerInfo, in_workers

__all__ = ["DataLoader"]

_Fetch = Callable[[Any], Any]


class DataLoader:
    """Iterates over a dataset in batches.

    - ``shuffle`` takes a new random order every epoch (from ``generator``, or else from the default generator);
      ``sampler`` or ``batch_sampler`` set the order themselves. ``drop_last`` leaves out a last, smaller batch.
      ``batch_size=None`` yields single samples.
    - ``collate_fn`` joins a list of samples; by default :func:`default_collate`.
    - ``num_workers > 0`` fetches ahead in that many *threads* (``prefetch_factor`` batches each), in the same order.
      Loading, decoding and tensor operations overlap with training; Python code in the dataset shares the interpreter.
      Threads share the dataset, so it must not be changed while reading. ``timeout`` (seconds) bounds the wait for
      one batch; ``worker_init_fn(id)`` runs first in every worker.
    - ``pin_memory``, ``persistent_workers`` and ``in_order`` are accepted and have no effect: threads start at once
      and keep order. ``multiprocessing_context`` must be None.

    Raises ``ValueError`` for options that contradict each other.

    >>> from tesserack import arange
    >>> from tesserack.utils.data import TensorDataset
    >>> loader = DataLoader(TensorDataset(arange(5)), batch_size=2)
    >>> [batch.tolist() for (batch,) in loader], len(loader)
    ([[0, 1], [2, 3], [4]], 3)
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.persistent_workers = persistent_workers
        self.generator = generator
        self._streams = isinstance(dataset, IterableDataset)
        self._check(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None and not self._streams:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None and not self._streams:
            batch_sampler = BatchSampler(sampler or (), batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)

    def _check(self, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool) -> None:
        if isinstance(self.num_workers, bool) or not isinstance(self.num_workers, int) or self.num_workers < 0:
            raise ValueError(f"DataLoader: expected num_workers >= 0, got {self.num_workers!r}")
        if self.timeout < 0:
            raise ValueError(f"DataLoader: expected timeout >= 0, got {self.timeout}")
        if self.num_workers == 0 and self.prefetch_factor is not None:
            raise ValueError("DataLoader: prefetch_factor needs num_workers > 0")
        if self.num_workers == 0 and self.persistent_workers:
            raise ValueError("DataLoader: persistent_workers needs num_workers > 0")
        if self.prefetch_factor is not None and self.prefetch_factor < 1:
            raise ValueError(f"DataLoader: expected prefetch_factor >= 1, got {self.prefetch_factor}")
        if self.multiprocessing_context is not None:
            raise ValueError("DataLoader: expected multiprocessing_context=None, workers are threads")
        if self._streams and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader: an IterableDataset sets its own order; give no shuffle or sampler")
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: sampler is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError(
                "DataLoader: batch_sampler is mutually exclusive with batch_size, shuffle, sampler and drop_last"
            )
        if batch_size is None and drop_last:
            raise ValueError("DataLoader: drop_last needs a batch_size")
        if batch_size is not None and (isinstance(batch_size, bool) or batch_size <= 0):
            raise ValueError(f"DataLoader: expected a positive batch_size or None, got {batch_size!r}")

    def __len__(self) -> int:
        if not self._streams:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]
        samples = len(self.dataset)
        if self.batch_size is None:
            return samples
        whole, rest = divmod(samples, self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0:
            return self._here()
        return in_workers(
            self._tasks(), self._fetcher, self._infos(), self.worker_init_fn, self.prefetch_factor or 2, self.timeout
        )

    def _tasks(self) -> Iterator[Any]:
        """What to fetch, one entry per batch: indices, or nothing in particular from a stream."""
        if self._streams:
            return itertools.repeat(None)
        return iter(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]

    def _here(self) -> Iterator[Any]:
        fetch = self._fetcher()
        for task in self._tasks():
            try:
                batch = fetch(task)
            except StopIteration:
                return
            yield batch

    def _infos(self) -> list[WorkerInfo]:
        seed = int(ts.randint(0, 2**62, (), dtype=ts.int64, generator=self.generator).item())
        return [WorkerInfo(i, self.num_workers, seed + i, self.dataset) for i in range(self.num_workers)]

    # --- fetching -----------------------------------------------------------------------------------------------

    def _fetcher(self) -> _Fetch:
        """A function from a task to a batch; for a stream it raises StopIteration at the end."""
        if self._streams:
            return self._stream_fetcher()
        dataset, collate = self.dataset, self.collate_fn
        if self.batch_sampler is None:
            return lambda index: collate(dataset[index])
        if collate is default_collate and _rows_of_tensors(dataset):
            return lambda indices: _take_rows(dataset, indices)
        several = getattr(dataset, "__getitems__", None)
        if several is not None:
            return lambda indices: collate(several(indices))
        return lambda indices: collate([dataset[i] for i in indices])

    def _stream_fetcher(self) -> _Fetch:
        samples = iter(self.dataset)
        collate, size, drop_last = self.collate_fn, self.batch_size, self.drop_last

        def fetch(_: Any) -> Any:
            if size is None:
                return collate(next(samples))
            batch = list(itertools.islice(samples, size))
            if not batch or (drop_last and len(batch) < size):
                raise StopIteration
            return collate(batch)

        return fetch


def _rows_of_tensors(dataset: Any) -> bool:
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
