"""Streams made of several, and several made of one."""

from __future__ import annotations

import copy as copies
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sized
from typing import Any

from tesserack.utils.data.datapipes._decorator import functional_datapipe
from tesserack.utils.data.datapipes.datapipe import IterDataPipe
from tesserack.utils.data.datapipes.iter.mapping import no_length

__all__ = [
    "ConcaterIterDataPipe",
    "DemultiplexerIterDataPipe",
    "ForkerIterDataPipe",
    "MultiplexerIterDataPipe",
    "ZipperIterDataPipe",
]


class _Several(IterDataPipe[Any]):
    """A stream that reads several others."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError(f"Expected at least one DataPipe for {type(self).__name__}, but got nothing")
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError(f"{type(self).__name__}: Expected all inputs to be `IterDataPipe`")
        self.datapipes = datapipes

    def _lengths(self) -> list[int]:
        if all(isinstance(pipe, Sized) for pipe in self.datapipes):
            return [len(pipe) for pipe in self.datapipes]
        raise no_length(self)


@functional_datapipe("concat")
class ConcaterIterDataPipe(_Several):
    """Streams one after the other; functional form ``.concat(others...)``, or ``+``.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([1]) + IterableWrapper([2]))
    [1, 2]
    """

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(self._lengths())


@functional_datapipe("zip")
class ZipperIterDataPipe(_Several):
    """Tuples of one sample of each stream, until the shortest ends; functional form ``.zip(others...)``.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper("ab").zip(IterableWrapper([1, 2, 3])))
    [('a', 1), ('b', 2)]
    """

    def __iter__(self) -> Iterator[Any]:
        return zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(self._lengths())


@functional_datapipe("mux")
class MultiplexerIterDataPipe(_Several):
    """One sample of each stream in turn, until the shortest ends; functional form ``.mux(others...)``.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper("ab").mux(IterableWrapper([1, 2, 3])))
    ['a', 1, 'b', 2]
    """

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(zip(*self.datapipes, strict=False))

    def __len__(self) -> int:
        return min(self._lengths()) * len(self.datapipes)


class _Shared(IterDataPipe[Any]):
    """One reader of a stream on behalf of several children, each with a queue of what it has not taken.

    A child that begins anew, or a second time, begins a new pass of all.
    """

    def __init__(self, datapipe: Any, count: int, buffer_size: int) -> None:
        if count < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {count} is found")
        if buffer_size == 0:
            raise ValueError("Expected `buffer_size` larger than 0, or -1 for no bound, got 0")
        if buffer_size < 0:
            warnings.warn("Unlimited buffer size is set, please be aware of OOM risks", UserWarning, stacklevel=4)
        self.main_datapipe = datapipe
        self.num_instances = count
        self.buffer_size = buffer_size
        self._forget()

    def _forget(self) -> None:
        self._source: Any = None
        self._queues: list[deque[Any]] = [deque() for _ in range(self.num_instances)]
        self._begun = [False] * self.num_instances
        self._pass: int = self.__dict__.get("_pass", -1) + 1

    def begin(self, child: int) -> int:
        """Number of the pass that a child reads in."""
        if self._begun[child]:
            if any(self._begun) and not all(self._ended_quietly(k) for k in range(self.num_instances)):
                warnings.warn(
                    "Some child DataPipes are not exhausted when __iter__ is called. We are resetting the buffer and "
                    "each child DataPipe will read from the start again.",
                    UserWarning,
                    stacklevel=4,
                )
            self._forget()
        self._begun[child] = True
        return self._pass

    def _ended_quietly(self, child: int) -> bool:
        return not self._queues[child] and self._source is _ENDED

    def next_of(self, child: int, number: int) -> Any:
        """The next sample of a child; ``_ENDED`` after the last."""
        if number != self._pass:
            raise RuntimeError(
                "This child's iterator has been invalidated because another child DataPipe began a new iteration"
            )
        queue = self._queues[child]
        while not queue:
            if self._source is None:
                self._source = iter(self.main_datapipe)
            if self._source is _ENDED:
                return _ENDED
            sample = next(self._source, _ENDED)
            if sample is _ENDED:
                self._source = _ENDED
                return _ENDED
            self._hand_out(sample, child)
        return queue.popleft()

    def _hand_out(self, sample: Any, asking: int) -> None:
        raise NotImplementedError

    def _check_room(self, waiting: int, name: str) -> None:
        if 0 <= self.buffer_size < waiting:
            raise BufferError(f"{name} buffer overflow, buffer size {self.buffer_size} is insufficient.")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None, "_queues": [deque() for _ in self._queues]}


_ENDED: Any = object()


class _Child(IterDataPipe[Any]):
    """One of the streams that share a reader."""

    def __init__(self, main_datapipe: _Shared, instance_id: int) -> None:
        self.main_datapipe = main_datapipe
        self.instance_id = instance_id

    def __iter__(self) -> Iterator[Any]:
        number = self.main_datapipe.begin(self.instance_id)
        return iter(lambda: self.main_datapipe.next_of(self.instance_id, number), _ENDED)

    def __len__(self) -> int:
        if isinstance(self.main_datapipe, Sized):
            return len(self.main_datapipe)
        raise no_length(self)


class _Fork(_Shared):
    def __init__(self, datapipe: Any, count: int, buffer_size: int, copy: str | None) -> None:
        super().__init__(datapipe, count, buffer_size)
        self.copy_fn = {None: None, "shallow": copies.copy, "deep": copies.deepcopy}[copy]

    def _hand_out(self, sample: Any, asking: int) -> None:
        for child, queue in enumerate(self._queues):
            queue.append(sample if self.copy_fn is None else self.copy_fn(sample))
            if child != asking:
                self._check_room(len(queue), "ForkerIterDataPipe")

    def __len__(self) -> int:
        return len(self.main_datapipe)


@functional_datapipe("fork")
class ForkerIterDataPipe(IterDataPipe[Any]):
    """``num_instances`` streams with all samples each; functional form ``.fork(n)``.

    At most ``buffer_size`` samples wait for the slowest (``BufferError``); -1 for any number. ``copy``: "shallow" or
    "deep" copies for each, None to share the objects.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> a, b = IterableWrapper([1, 2]).fork(2)
    >>> list(a), list(b)
    ([1, 2], [1, 2])
    """

    def __new__(cls, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: str | None = None) -> Any:
        if copy not in (None, "shallow", "deep"):
            raise ValueError(f"Unknown copy method `{copy}` requested, choose one of None, `shallow` or `deep`.")
        if num_instances == 1 and copy is None:
            return datapipe
        shared = _Fork(datapipe, num_instances, buffer_size, copy)
        return [_Child(shared, k) for k in range(num_instances)]


class _Demultiplexer(_Shared):
    def __init__(
        self, datapipe: Any, count: int, classifier_fn: Callable[[Any], int | None], drop_none: bool, buffer_size: int
    ) -> None:
        super().__init__(datapipe, count, buffer_size)
        self.classifier_fn = classifier_fn
        self.drop_none = drop_none

    def _hand_out(self, sample: Any, asking: int) -> None:
        which = self.classifier_fn(sample)
        if which is None and self.drop_none:
            return
        if which is None or not 0 <= which < self.num_instances:
            raise ValueError(
                f"Output of the classification fn should be between 0 and {self.num_instances - 1}. "
                f"{which} is returned."
            )
        self._queues[which].append(sample)
        waiting = sum(len(queue) for child, queue in enumerate(self._queues) if child != asking)
        self._check_room(waiting, "DemultiplexerIterDataPipe")


@functional_datapipe("demux")
class DemultiplexerIterDataPipe(IterDataPipe[Any]):
    """``num_instances`` streams; ``classifier_fn`` gives the number of that of a sample; form ``.demux(n, fn)``.

    Samples classified as None are left out with ``drop_none``, else an error. At most ``buffer_size`` samples wait for
    streams that are not being read (``BufferError``); -1 for any number.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> even, odd = IterableWrapper(range(5)).demux(2, lambda n: n % 2)
    >>> list(even), list(odd)
    ([0, 2, 4], [1, 3])
    """

    def __new__(
        cls,
        datapipe: Any,
        num_instances: int,
        classifier_fn: Callable[[Any], int | None],
        drop_none: bool = False,
        buffer_size: int = 1000,
    ) -> Any:
        shared = _Demultiplexer(datapipe, num_instances, classifier_fn, drop_none, buffer_size)
        return [_Child(shared, k) for k in range(num_instances)]
