"""Datapipes of samples by index."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tesserack as ts
from tesserack.utils.data.datapipes._decorator import functional_datapipe
from tesserack.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, MapDataPipe

__all__ = [
    "BatcherMapDataPipe",
    "ConcaterMapDataPipe",
    "MapperMapDataPipe",
    "SequenceWrapperMapDataPipe",
    "ShufflerIterDataPipe",
    "ZipperMapDataPipe",
]


class SequenceWrapperMapDataPipe(MapDataPipe[Any]):
    """The samples of a sequence or a dict, copied once unless ``deepcopy=False``.

    >>> SequenceWrapperMapDataPipe({"a": 100})["a"]
    100
    """

    def __init__(self, sequence: Sequence[Any] | Mapping[Any, Any], deepcopy: bool = True) -> None:
        self.sequence: Any = sequence
        if deepcopy:
            try:
                self.sequence = copy.deepcopy(sequence)
            except TypeError:
                warnings.warn(
                    "The input sequence can not be deepcopied, please be aware of in-place modification would affect "
                    "source data",
                    stacklevel=2,
                )

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


def _same(sample: Any) -> Any:
    return sample


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe[Any]):
    """``fn`` of each sample; functional form ``.map(fn)``."""

    def __init__(self, datapipe: Any, fn: Callable[[Any], Any] = _same) -> None:
        self.datapipe = datapipe
        self.fn = fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


class _Several(MapDataPipe[Any]):
    """Samples of several datapipes."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError(f"Expected at least one DataPipe for {type(self).__name__}, but got nothing")
        if not all(isinstance(pipe, MapDataPipe) for pipe in datapipes):
            raise TypeError(f"{type(self).__name__}: Expected all inputs to be `MapDataPipe`")
        self.datapipes = datapipes


@functional_datapipe("concat")
class ConcaterMapDataPipe(_Several):
    """Datapipes one after the other, counted from 0; functional form ``.concat(others...)``, or ``+``.

    >>> joined = SequenceWrapperMapDataPipe([1, 2]) + SequenceWrapperMapDataPipe([3])
    >>> joined[2], len(joined)
    (3, 3)
    """

    def __getitem__(self, index: Any) -> Any:
        offset = 0
        for pipe in self.datapipes:
            if index - offset < len(pipe):
                return pipe[index - offset]
            offset += len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class ZipperMapDataPipe(_Several):
    """Tuples of the samples at one index, as many as the shortest has; functional form ``.zip(others...)``."""

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        found = []
        for pipe in self.datapipes:
            try:
                found.append(pipe[index])
            except IndexError as error:
                raise IndexError(f"Index {index} is out of range for one of the input MapDataPipes {pipe}.") from error
        return tuple(found)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe[Any]):
    """Lists of ``batch_size`` samples, the last smaller unless ``drop_last``; functional form ``.batch(n)``."""

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Any = DataChunk) -> None:
        if batch_size <= 0:
            raise AssertionError(f"Batch size is required to be larger than 0, got {batch_size}")
        self.datapipe = datapipe
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.wrapper_class = wrapper_class

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        start = index * self.batch_size
        stop = min(start + self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[i] for i in range(start, stop)])

    def __len__(self) -> int:
        whole, rest = divmod(len(self.datapipe), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


class ShufflerIterDataPipe(IterDataPipe[Any]):
    """A stream of all samples in random order; functional form ``.shuffle()``.

    ``indices`` are the keys of the samples where those are not 0 to the length. ``set_seed(seed)`` fixes the next
    order; a ``DataLoader`` with ``shuffle=False`` turns shufflers off.

    >>> sorted(SequenceWrapperMapDataPipe([3, 1, 2]).shuffle())
    [1, 2, 3]
    """

    def __init__(self, datapipe: Any, *, indices: list[Any] | None = None) -> None:
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else indices
        self._enabled = True
        self._seed: int | None = None
        self._rng = random.Random()
        self._order: list[Any] = self.indices

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Turn this shuffler on or off."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """Fix the order of the next iteration."""
        self._seed = seed
        return self

    def reset(self) -> None:
        """Draw the order that follows."""
        self._order = self.indices
        if self._enabled:
            if self._seed is None:
                self._seed = int(ts.empty((), dtype=ts.int64).random_().item())
            self._rng.seed(self._seed)
            self._seed = None
            self._order = self._rng.sample(self.indices, len(self.indices))[::-1]

    def __iter__(self) -> Iterator[Any]:
        for index in self._order:
            yield self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)  # a stream, made of samples by index
