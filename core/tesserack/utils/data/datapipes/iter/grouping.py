"""Streams of batches and of groups, and of what is in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sized
from typing import Any

from tesserack.utils.data.datapipes._decorator import functional_datapipe
from tesserack.utils.data.datapipes.datapipe import DataChunk, IterDataPipe
from tesserack.utils.data.datapipes.iter.mapping import no_length

__all__ = ["BatcherIterDataPipe", "GrouperIterDataPipe", "UnBatcherIterDataPipe"]


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe[Any]):
    """Lists of ``batch_size`` samples, the last smaller unless ``drop_last``; functional form ``.batch(n)``.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(5)).batch(2)), len(IterableWrapper(range(5)).batch(2, drop_last=True))
    ([[0, 1], [2, 3], [4]], 2)
    """

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Any = DataChunk) -> None:
        if batch_size <= 0:
            raise AssertionError(f"Batch size is required to be larger than 0, got {batch_size}")
        self.datapipe = datapipe
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.wrapper_class = wrapper_class

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        if not isinstance(self.datapipe, Sized):
            raise no_length(self)
        whole, rest = divmod(len(self.datapipe), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe[Any]):
    """What is in batches, ``unbatch_level`` levels deep or, with -1, all; functional form ``.unbatch()``.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([[[0], [1]], [[2]]]).unbatch(unbatch_level=-1))
    [0, 1, 2]
    """

    def __init__(self, datapipe: Any, unbatch_level: int = 1) -> None:
        self.datapipe = datapipe
        self.unbatch_level = unbatch_level

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            yield from self._inside(sample, self.unbatch_level)

    def _inside(self, sample: Any, level: int) -> Iterator[Any]:
        if level < -1:
            raise ValueError(f"unbatch_level must be -1 or >= 0, got {level}")
        nested = isinstance(sample, (list, DataChunk))
        if level == 0 or (level == -1 and not nested):
            yield sample
        elif nested:
            for item in sample:
                yield from self._inside(item, level if level == -1 else level - 1)
        else:
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe[Any]):
    """Lists of samples with one value of ``group_key_fn``; functional form ``.groupby(fn)``.

    A group is yielded when it has ``group_size`` samples, and what is left at the end. At most ``buffer_size`` samples
    wait: then the largest group goes early if it has ``guaranteed_group_size`` (else, with ``drop_remaining``, it is
    lost; otherwise ``RuntimeError``). ``keep_key`` yields pairs of key and list.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(["a1", "b1", "a2"]).groupby(lambda name: name[0]))
    [['a1', 'a2'], ['b1']]
    """

    def __init__(
        self,
        datapipe: Any,
        group_key_fn: Callable[[Any], Any],
        *,
        keep_key: bool = False,
        buffer_size: int = 10000,
        group_size: int | None = None,
        guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> None:
        if group_size is not None and not 0 < group_size <= buffer_size:
            raise AssertionError(f"groupby: expected 0 < group_size <= buffer_size ({buffer_size}), got {group_size}")
        if guaranteed_group_size is not None and (group_size is None or not 0 < guaranteed_group_size <= group_size):
            raise AssertionError(
                f"groupby: expected 0 < guaranteed_group_size <= group_size ({group_size}), got {guaranteed_group_size}"
            )
        self.datapipe = datapipe
        self.group_key_fn = group_key_fn
        self.keep_key = keep_key
        self.max_buffer_size = buffer_size
        self.group_size = group_size
        self.guaranteed_group_size = group_size if guaranteed_group_size is None else guaranteed_group_size
        self.drop_remaining = drop_remaining
        self.wrapper_class = DataChunk

    def _finished(self, key: Any, group: list[Any]) -> Any:
        result: Any = self.wrapper_class(group)
        return (key, result) if self.keep_key else result

    def _largest(self, groups: dict[Any, list[Any]]) -> Any:
        """The key of the group that has to make room."""
        key = max(groups, key=lambda name: len(groups[name]))
        size = len(groups[key])
        if self.guaranteed_group_size is not None and size < self.guaranteed_group_size and not self.drop_remaining:
            raise RuntimeError(f"Failed to group items: the largest group, {groups[key]}, has {size} samples and the "
                               f"buffer of {self.max_buffer_size} is full")  # fmt: skip
        return key

    def __iter__(self) -> Iterator[Any]:
        groups: defaultdict[Any, list[Any]] = defaultdict(list)
        waiting = 0
        for sample in self.datapipe:
            key = self.group_key_fn(sample)
            groups[key].append(sample)
            waiting += 1
            if self.group_size is not None and len(groups[key]) == self.group_size:
                waiting -= self.group_size
                yield self._finished(key, groups.pop(key))
            if waiting == self.max_buffer_size:
                key = self._largest(groups)
                group = groups.pop(key)
                waiting -= len(group)
                if self.guaranteed_group_size is None or len(group) >= self.guaranteed_group_size:
                    yield self._finished(key, group)
        for key in [*groups]:
            group = groups.pop(key)
            if self.drop_remaining and self.guaranteed_group_size and len(group) < self.guaranteed_group_size:
                continue
            yield self._finished(key, group)
