"""Streams in another order, or with a part of the samples."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator, Sized
from typing import Any

import tesserack as ts
from tesserack.utils.data.datapipes._decorator import functional_datapipe
from tesserack.utils.data.datapipes.datapipe import IterDataPipe
from tesserack.utils.data.datapipes.iter.mapping import no_length
from tesserack.utils.data.sampler import SequentialSampler

__all__ = ["SHARDING_PRIORITIES", "SamplerIterDataPipe", "ShardingFilterIterDataPipe", "ShufflerIterDataPipe"]


class SamplerIterDataPipe(IterDataPipe[Any]):
    """What a sampler draws from a datapipe of known length.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> list(SamplerIterDataPipe(IterableWrapper("abc")))
    [0, 1, 2]
    """

    def __init__(
        self,
        datapipe: Any,
        sampler: Any = SequentialSampler,
        sampler_args: tuple[Any, ...] | None = None,
        sampler_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(datapipe, Sized):
            raise AssertionError(f"Sampler class requires input datapipe implemented `__len__`, got {type(datapipe)}")
        self.datapipe = datapipe
        self.sampler_args = sampler_args or ()
        self.sampler_kwargs = {**(sampler_kwargs or {}), "data_source": datapipe}
        self.sampler = sampler(*self.sampler_args, **self.sampler_kwargs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        if isinstance(self.sampler, Sized):
            return len(self.sampler)
        raise no_length(self)


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(IterDataPipe[Any]):
    """Samples in random order, drawn from a buffer that holds ``buffer_size`` of them; form ``.shuffle()``.

    With ``unbatch_level`` batches are taken apart first. The order follows ``set_seed(seed)``, or the default
    generator; a ``DataLoader`` with ``shuffle=False`` turns shufflers off.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> sorted(IterableWrapper(range(4)).shuffle(buffer_size=2))
    [0, 1, 2, 3]
    """

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise AssertionError(f"buffer_size should be larger than 0, got {buffer_size}")
        self.datapipe = datapipe if unbatch_level == 0 else datapipe.unbatch(unbatch_level=unbatch_level)
        self.buffer_size = buffer_size
        self._enabled = True
        self._seed: int | None = None
        self._rng = random.Random()

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Turn this shuffler on or off."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """Fix the order of the next iteration."""
        self._seed = seed
        return self

    def reset(self) -> None:
        """Seed the order that follows."""
        if self._enabled:
            if self._seed is None:
                self._seed = int(ts.empty((), dtype=ts.int64).random_().item())
            self._rng.seed(self._seed)
            self._seed = None

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        buffer: list[Any] = []
        for sample in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(sample)
                continue
            place = self._rng.randint(0, len(buffer) - 1)
            chosen, buffer[place] = buffer[place], sample
            yield chosen
        while buffer:
            yield buffer.pop(self._rng.randint(0, len(buffer) - 1))

    def __len__(self) -> int:
        if isinstance(self.datapipe, Sized):
            return len(self.datapipe)
        raise no_length(self)


class SHARDING_PRIORITIES(enum.IntEnum):
    """What the samples are shared among: anything, machines of a job, or workers of a loader."""

    DEFAULT = 1
    DISTRIBUTED = 2
    MULTIPROCESSING = 3


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(IterDataPipe[Any]):
    """Every n-th sample, where n workers each have this pipe; functional form ``.sharding_filter()``.

    A ``DataLoader`` tells each worker's pipes which it is; everywhere else all samples pass.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> pipe = IterableWrapper(range(5)).sharding_filter()
    >>> pipe.apply_sharding(2, 1)
    >>> list(pipe), len(pipe)
    ([1, 3], 2)
    """

    def __init__(self, source_datapipe: Any, sharding_group_filter: Any = None) -> None:
        self.source_datapipe = source_datapipe
        self.sharding_group_filter = sharding_group_filter
        self.groups: dict[Any, tuple[int, int]] = {}
        self.num_of_instances = 1
        self.instance_id = 0

    def apply_sharding(
        self, num_of_instances: int, instance_id: int, sharding_group: Any = SHARDING_PRIORITIES.DEFAULT
    ) -> None:
        """Keep the share of number ``instance_id``; shares of several groups are taken one after the other.

        ``ValueError`` for a number out of range, ``RuntimeError`` for the default group beside others.
        """
        if instance_id >= num_of_instances:
            raise ValueError(f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})")
        default = SHARDING_PRIORITIES.DEFAULT
        if any((group == default) != (sharding_group == default) for group in self.groups):
            raise RuntimeError("ShardingFilter cannot mix DEFAULT and non DEFAULT groups")
        self.groups[sharding_group] = num_of_instances, instance_id
        self.num_of_instances, self.instance_id = 1, 0
        for group in sorted(self.groups):
            if self.sharding_group_filter is None or group == self.sharding_group_filter:
                count, number = self.groups[group]
                self.instance_id += self.num_of_instances * number
                self.num_of_instances *= count

    def __iter__(self) -> Iterator[Any]:
        for i, sample in enumerate(self.source_datapipe):
            if i % self.num_of_instances == self.instance_id:
                yield sample

    def __len__(self) -> int:
        if not isinstance(self.source_datapipe, Sized):
            raise no_length(self)
        whole, rest = divmod(len(self.source_datapipe), self.num_of_instances)
        return whole + (self.instance_id < rest)
