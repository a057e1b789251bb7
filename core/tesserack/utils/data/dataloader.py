"""The loader: a dataset, an order and a way to join samples make batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import tesserack as ts
from tesserack.utils.data._fetch import END, Fetcher, rows_of_tensors
from tesserack.utils.data.collate import default_collate, default_convert, rebuilt_mapping
from tesserack.utils.data.datapipes.datapipe import IterDataPipe
from tesserack.utils.data.dataset import IterableDataset
from tesserack.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from tesserack.utils.data.worker_info import WorkerInfo
from tesserack.utils.data.workers import Batches, ThreadWorkers, Workers

__all__ = ["DataLoader"]

T_co = TypeVar("T_co", covariant=True)


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
        self._streams = isinstance(dataset, IterableDataset)
        if isinstance(dataset, IterDataPipe) and shuffle is not None:
            from tesserack.utils.data.graph_settings import apply_shuffle_settings

            self.dataset, shuffle = apply_shuffle_settings(dataset, shuffle=shuffle), None
        self._check(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None and not self._streams:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None and sampler is not None:  # streams have none
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        self._made = True

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
        if batch_size is not None and (isinstance(batch_size, bool) or batch_size <= 0):
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

    #: What an epoch's order was made of.
    _SETTLED = frozenset({"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"})
    _made = False

    def __setattr__(self, name: str, value: Any) -> None:
        if self._made and name in self._SETTLED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)
        if self._made and name == "multiprocessing_context":
            self._check_workers()

    def __len__(self) -> int:
        if not self._streams:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]
        samples = len(self.dataset)
        if self.batch_size is None:
            return samples
        whole, rest = divmod(samples, self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def __iter__(self) -> Iterator[Any]:
        seed = self._base_seed()
        if self.num_workers == 0:
            return self._here(seed)
        infos = [WorkerInfo(i, self.num_workers, seed + i, self.dataset) for i in range(self.num_workers)]
        after = _pinned if self.pin_memory else None
        ahead = self.prefetch_factor or 2
        return Batches(self._start(infos), self._tasks(), ahead, self.timeout, self.in_order, after)

    def _base_seed(self) -> int:
        """The seed of the first worker, drawn whatever their number, which must not change what is drawn afterwards.

        Persistent workers take theirs once, and no more numbers are drawn; threads, which are new in each epoch, go on
        from the last one's. Seeds of datapipes are new in every epoch.
        """
        if self._seed is None or not self.persistent_workers or isinstance(self.dataset, IterDataPipe):
            self._seed = int(ts.empty((), dtype=ts.int64).random_(generator=self.generator).item())
        else:
            self._seed += self.num_workers
        return self._seed

    def _start(self, infos: list[WorkerInfo]) -> Workers:
        """The workers of an epoch: threads, new processes, or those of the epoch before."""
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
        return {**self.__dict__, "_processes": None}

    def _tasks(self) -> Iterator[Any]:
        """What to fetch, one entry per batch: indices, or nothing in particular from a stream."""
        if self._streams:
            return itertools.repeat(None)
        return iter(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]

    def _fetcher(self, seed: int = 0) -> Fetcher:
        shared = seed if isinstance(self.dataset, IterDataPipe) else None
        batched = self.batch_sampler is not None or (self._streams and self.batch_size is not None)
        return Fetcher(self.dataset, self.collate_fn, batched, self._streams, self.batch_size, self.drop_last, shared)

    def _here(self, seed: int) -> Iterator[Any]:
        fetch = self._fetcher(seed).start()
        for task in self._tasks():
            batch = fetch(task)
            if batch is END:
                return
            yield _pinned(batch) if self.pin_memory else batch


def _pinned(batch: Any) -> Any:
    """The batch with ``pin_memory()`` called on whatever in it has that."""
    if hasattr(batch, "pin_memory"):
        return batch.pin_memory()
    if isinstance(batch, Mapping):
        return rebuilt_mapping(batch, {key: _pinned(value) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_pinned, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(_pinned, batch)) if type(batch) in (list, tuple) else [_pinned(v) for v in batch]
    return batch
