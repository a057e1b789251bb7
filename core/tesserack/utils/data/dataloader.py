"""The loader: a dataset, an order and a way to join samples make batches."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import tesserack as ts
from tesserack.utils.data._fetch import Fetcher, rows_of_tensors
from tesserack.utils.data.collate import default_collate, default_convert
from tesserack.utils.data.datapipes.datapipe import IterDataPipe
from tesserack.utils.data.dataset import IterableDataset
from tesserack.utils.data.iterators import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _InfiniteConstantSampler,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)
from tesserack.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from tesserack.utils.data.worker_info import WorkerInfo
from tesserack.utils.data.workers import ThreadWorkers, Workers

__all__ = ["DataLoader"]

T_co = TypeVar("T_co", covariant=True)
_collate_fn_t = Callable[[list[Any]], Any]
_worker_init_fn_t = Callable[[int], None]


class Samples(Protocol[T_co]):
    """Whatever has samples to take by index or key: a dataset, a list, an array."""

    def __getitem__(self, index: Any, /) -> T_co: ...


class DataLoader(Generic[T_co]):
    """Iterates over a dataset in batches.

    - ``shuffle`` takes a new random order every epoch (from ``generator``, or else from the default generator);
      ``sampler`` or ``batch_sampler`` set the order themselves. ``drop_last`` leaves out a last, smaller batch.
      ``batch_size=None`` yields single samples.
    - ``collate_fn`` joins a list of samples; by default :func:`default_collate`.
    - ``num_workers > 0`` fetches ahead in that many workers (``prefetch_factor`` batches each), in the same order, or
      as they come with ``in_order=False``. ``timeout`` (seconds) bounds the wait for one batch. ``worker_init_fn(id)``
      runs first in every worker. An error in a worker is raised here, with its traceback there as the cause.
    - ``worker_type="process"``: each worker has its own copy of the dataset, and its own seed for ``random``, NumPy and
      Tesserack. Batches come through shared memory. ``multiprocessing_context`` is a start method ("fork", "spawn",
      "forkserver") or a context. ``persistent_workers`` go on to the next epoch. A worker that is killed is an error.
    - ``worker_type="thread"``: workers share the dataset, which must not be changed while reading, and the
      interpreter; they start at once, and nothing is copied.
    - By default workers are processes, as they are in PyTorch, but threads for rows of a :class:`TensorDataset`, where
      they run no Python code of the dataset's.
    - ``pin_memory=True`` calls ``pin_memory()`` on what is in a batch.

    Raises ``ValueError`` for options that contradict each other.

    >>> from tesserack import arange
    >>> from tesserack.utils.data import TensorDataset
    >>> loader = DataLoader(TensorDataset(arange(5)), batch_size=2)
    >>> [batch.tolist() for (batch,) in loader], len(loader)
    ([[0, 1], [2, 3], [4]], 3)
    """

    def __init__(
        self,
        dataset: Samples[T_co],
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
        worker_type: str | None = None,
    ) -> None:
        self.dataset: Any = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.persistent_workers = persistent_workers
        self.generator = generator
        self.in_order = in_order
        self.worker_type = worker_type
        self._processes: Any = None
        self._seed: int | None = None
        self._iterator: _BaseDataLoaderIter | None = None  # of persistent workers
        self._IterableDataset_len_called: int | None = None
        self._streams = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if self._streams else _DatasetKind.Map
        if isinstance(dataset, IterDataPipe) and shuffle is not None:
            from tesserack.utils.data.graph_settings import apply_shuffle_settings

            self.dataset, shuffle = apply_shuffle_settings(dataset, shuffle=shuffle), None
        self._check(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None and self._streams:
            sampler = _InfiniteConstantSampler()
        elif sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.collate_fn = collate_fn or (default_collate if self._auto_collation else default_convert)
        self.__initialized = True
        self.check_worker_number_rationality()

    def _check(self, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool) -> None:
        if isinstance(self.num_workers, bool) or not isinstance(self.num_workers, int) or self.num_workers < 0:
            raise ValueError(f"DataLoader: num_workers option should be non-negative, got {self.num_workers!r}")
        if self.timeout < 0:
            raise ValueError(f"DataLoader: expected timeout >= 0, got {self.timeout}")
        if self.num_workers == 0 and self.prefetch_factor is not None:
            raise ValueError("DataLoader: prefetch_factor needs num_workers > 0")
        if self.num_workers == 0 and self.persistent_workers:
            raise ValueError("DataLoader: persistent_workers needs num_workers > 0")
        if self.prefetch_factor is not None and self.prefetch_factor < 1:
            raise ValueError(f"DataLoader: expected prefetch_factor >= 1, got {self.prefetch_factor}")
        self._check_workers()
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
        is_count = isinstance(batch_size, (int, float)) and not isinstance(batch_size, bool)
        if batch_size is not None and not (is_count and batch_size > 0):
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size!r}")

    def _check_workers(self) -> None:
        if self.worker_type not in (None, "process", "thread"):
            raise ValueError(f"DataLoader: expected worker_type 'process' or 'thread', got {self.worker_type!r}")
        if self.multiprocessing_context is None:
            return
        if self.num_workers == 0 or self.worker_type == "thread":
            raise ValueError(
                "DataLoader: multiprocessing_context needs num_workers > 0, and workers that are processes"
            )
        from tesserack.utils.data.processes import context_of

        object.__setattr__(self, "multiprocessing_context", context_of(self.multiprocessing_context))

    def check_worker_number_rationality(self) -> None:
        """Warn of more workers than there are processors for this process."""
        here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if self.num_workers > here:
            kind = "processes" if self._kind() == "process" else "threads"
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker {kind} in total. Our suggested max number "
                f"of worker in current system is {here}, which is smaller than what this DataLoader is going to "
                "create; excessive worker creation might get DataLoader running slow or even freeze",
                stacklevel=3,
            )

    #: What an epoch's order was made of.
    _SETTLED = frozenset({"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"})
    __initialized = False  # programs that settle these again put it off meanwhile

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__initialized and name in self._SETTLED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)
        if self.__initialized and name == "multiprocessing_context":
            self._check_workers()

    @property
    def _auto_collation(self) -> bool:
        """Whether samples are joined to batches here."""
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        """What says which samples to fetch, one entry per batch."""
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self) -> int:
        if not self._streams:
            return len(self._index_sampler)
        samples = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return samples
        whole, rest = divmod(samples, self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def __iter__(self) -> _BaseDataLoaderIter:
        if not self.persistent_workers or self.num_workers == 0:
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def _get_iterator(self) -> _BaseDataLoaderIter:
        """A new iterator: what an epoch begins with, and what programs replace."""
        return _SingleProcessDataLoaderIter(self) if self.num_workers == 0 else _MultiProcessingDataLoaderIter(self)

    def _next_seed(self) -> int:
        """The seed of the first worker, drawn whatever their number, which must not change what is drawn afterwards.

        Persistent workers take theirs once, and no more numbers are drawn; threads, which are new in each epoch, go on
        from the last one's. Seeds of datapipes are new in every epoch.
        """
        if self._seed is None or not self.persistent_workers or isinstance(self.dataset, IterDataPipe):
            self._seed = int(ts.empty((), dtype=ts.int64).random_(generator=self.generator).item())
        else:
            self._seed += self.num_workers
        return self._seed

    def _start(self, seed: int) -> Workers:
        """The workers of an epoch: threads, new processes, or those of the epoch before."""
        infos = [WorkerInfo(i, self.num_workers, seed + i, self.dataset) for i in range(self.num_workers)]
        if self._kind() == "thread":
            return ThreadWorkers(self._fetcher(), infos, self.worker_init_fn)
        from tesserack.utils.data.processes import ProcessWorkers, context_of

        if self._processes is not None and self._processes.usable:
            self._processes.next_epoch(infos)
            return self._processes  # type: ignore[no-any-return]
        context = context_of(self.multiprocessing_context)
        workers = ProcessWorkers(self._fetcher(), infos, self.worker_init_fn, context, self.persistent_workers)
        self._processes = workers if self.persistent_workers else None
        return workers

    def _kind(self) -> str:
        """Threads unless chosen otherwise where they run no code of the user's, which may count on processes."""
        if self.worker_type is not None:
            return self.worker_type
        own = self.multiprocessing_context is not None or self.worker_init_fn is not None
        plain = self.collate_fn in (default_collate, default_convert) and rows_of_tensors(self.dataset)
        return "thread" if plain and not own else "process"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_processes": None, "_iterator": None}

    def _fetcher(self, seed: int = 0) -> Fetcher:
        shared = seed if isinstance(self.dataset, IterDataPipe) else None
        batched, size = self._auto_collation, self.batch_size
        return Fetcher(self.dataset, self.collate_fn, batched, self._streams, size, self.drop_last, shared)
