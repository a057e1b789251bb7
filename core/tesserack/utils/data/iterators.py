"""The iterators of a loader, under the names and with the members that programs know."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

from tesserack.utils import _ranges
from tesserack.utils.data._fetch import END, Fetcher
from tesserack.utils.data.collate import rebuilt
from tesserack.utils.data.workers import Batches, Workers

__all__ = ["pinned"]


class _DatasetKind:
    """How a dataset is asked: by index, or as a stream."""

    Map = 0
    Iterable = 1


class _InfiniteConstantSampler:
    """``None`` for ever: the order of a stream is its own."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(None)


class _BaseDataLoaderIter:
    """Goes through a loader's batches once, or again after :meth:`_reset`."""

    def __init__(self, loader: Any) -> None:
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._pin_memory = loader.pin_memory
        self._pin_memory_device = loader.pin_memory_device
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._persistent_workers = loader.persistent_workers
        self._reset(loader, first_iter=True)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin an epoch."""
        self._sampler_iter: Iterator[Any] = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._base_seed = loader._next_seed()

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __next__(self) -> Any:
        if _ranges.named:
            with _ranges.around(f"enumerate(DataLoader)#{type(self).__name__}.__next__"):
                batch = self._next_data()
        else:
            batch = self._next_data()
        self._num_yielded += 1
        told = self._IterableDataset_len_called
        if self._dataset_kind == _DatasetKind.Iterable and told is not None and self._num_yielded > told:
            hint = (
                " For multiprocessing data-loading, this may be since each worker goes through the whole stream, "
                "unless it takes a part by get_worker_info()."
                if self._num_workers
                else ""
            )
            warnings.warn(
                f"Length of IterableDataset {self._dataset} was reported to be {told}(when accessing len(dataloader)), "
                f"but {self._num_yielded} samples have been fetched.{hint}",
                stacklevel=2,
            )
        return batch

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Fetches batches where it is asked for them."""

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        fetcher: Fetcher = loader._fetcher(self._base_seed)
        self._dataset_fetcher = fetcher.start()

    def _next_data(self) -> Any:
        batch = self._dataset_fetcher(self._next_index())
        if batch is END:
            raise StopIteration
        return pinned(batch) if self._pin_memory else batch


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Takes batches that workers, processes or threads, fetch ahead."""

    _pin_memory_thread = None
    _batches: Batches | None = None

    def __init__(self, loader: Any) -> None:
        self._prefetch_factor = loader.prefetch_factor or 2
        self._in_order = loader.in_order
        super().__init__(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        if self._batches is not None:
            self._batches.close()  # what nobody asked for of the epoch before
        after = pinned if self._pin_memory else None
        self._kept: Workers = loader._start(self._base_seed)
        self._batches = Batches(
            self._kept, self._sampler_iter, self._prefetch_factor, self._timeout, self._in_order, after
        )

    @property
    def _workers(self) -> list[Any]:
        """The processes or threads, as :mod:`multiprocessing` or :mod:`threading` have them."""
        return self._kept.handles()

    def _next_data(self) -> Any:
        assert self._batches is not None
        return next(self._batches)

    def close(self) -> None:
        """Let the workers go; persistent ones wait for the next epoch."""
        if self._batches is not None:
            self._batches.close()

    def _shutdown_workers(self) -> None:
        """End the workers, persistent ones too."""
        self.close()
        self._kept.end()

    def __del__(self) -> None:
        self.close()


def pinned(batch: Any) -> Any:
    """The batch with ``pin_memory()`` called on whatever in it has that."""
    if hasattr(batch, "pin_memory"):
        return batch.pin_memory()
    if isinstance(batch, (str, bytes)):
        return batch
    if type(batch) is tuple:
        return tuple(map(pinned, batch))
    return rebuilt(batch, pinned)
