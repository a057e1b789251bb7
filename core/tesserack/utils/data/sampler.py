"""The order in which samples are taken."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import tesserack as ts

__all__ = [
    "BatchSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """An iterable over indices or batches of them: subclasses define ``__iter__`` and, if they can, ``__len__``."""

    def __init__(self, data_source: Any = None) -> None:
        """``data_source`` is accepted for older subclasses and not used."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__}: define __iter__()")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ...

    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


def _fresh_generator() -> Any:
    """A generator seeded from the default one, so that ``manual_seed`` fixes the order."""
    generator = ts.Generator()
    generator.manual_seed(int(ts.empty((), dtype=ts.int64).random_().item()))
    return generator


class RandomSampler(Sampler[int]):
    """All indices in random order, or ``num_samples`` of them; with ``replacement`` each drawn independently.

    >>> sorted(RandomSampler("abc"))
    [0, 1, 2]
    """

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(
                f"RandomSampler: replacement should be a boolean value, but got replacement={replacement!r}"
            )
        if num_samples is not None and (not isinstance(num_samples, int) or num_samples <= 0):
            raise ValueError(f"RandomSampler: expected a positive num_samples, got {num_samples!r}")
        if num_samples is None and len(data_source) == 0:
            raise ValueError("RandomSampler: num_samples should be a positive integer value, but got num_samples=0")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """How many indices one pass gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size = len(self.data_source)
        generator = _fresh_generator() if self.generator is None else self.generator
        wanted = self.num_samples
        if self.replacement:
            for start in range(0, wanted, 1024):
                count = min(1024, wanted - start)
                yield from ts.randint(0, size, (count,), dtype=ts.int64, generator=generator).tolist()
            return
        while wanted > 0 and size > 0:
            yield from ts.randperm(size, generator=generator).tolist()[:wanted]
            wanted -= size
        if wanted == 0 and self.generator is not None:  # PyTorch draws one order more, of which it takes nothing
            ts.randperm(size, generator=generator)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order.

    >>> sorted(SubsetRandomSampler([4, 2]))
    [2, 4]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in ts.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """``num_samples`` indices, each as probable as its weight says.

    Without ``replacement`` no index comes twice: the order is that of u ** (1 / weight) for uniform u (Efraimidis and
    Spirakis, 2006), compared by logarithms, and there must be at least ``num_samples`` positive weights.

    >>> list(WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self, weights: Iterable[float], num_samples: int, replacement: bool = True, generator: Any = None
    ) -> None:
        if isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples <= 0:
            raise ValueError(f"WeightedRandomSampler: expected a positive num_samples, got {num_samples!r}")
        if not isinstance(replacement, bool):
            raise ValueError(
                f"WeightedRandomSampler: replacement should be a boolean value, but got replacement={replacement!r}"
            )
        try:
            listed = [float(weight) for weight in weights]
        except TypeError:
            raise ValueError(f"WeightedRandomSampler: expected one number for each sample, got {weights!r}") from None
        if any(not weight >= 0 or weight == float("inf") for weight in listed) or not any(listed):
            raise ValueError("WeightedRandomSampler: expected finite weights >= 0, some of them positive")
        if not replacement and num_samples > sum(weight > 0 for weight in listed):
            raise ValueError("WeightedRandomSampler: fewer positive weights than num_samples; allow replacement")
        self.weights = listed
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        if self.replacement:
            return self._with_replacement()
        return self._without_replacement()

    def _uniform(self, count: int) -> list[float]:
        return ts.rand(count, dtype=ts.float64, generator=self.generator).tolist()  # type: ignore[no-any-return]

    def _with_replacement(self) -> Iterator[int]:
        largest = max(self.weights)
        sums = list(itertools.accumulate(weight / largest for weight in self.weights))
        last = max(i for i, weight in enumerate(self.weights) if weight > 0)
        for u in self._uniform(self.num_samples):
            yield min(bisect_right(sums, u * sums[-1]), last)

    def _without_replacement(self) -> Iterator[int]:
        draws = zip(self._uniform(len(self.weights)), self.weights, strict=True)
        keys = [(_log_arrival(u, weight), i) for i, (u, weight) in enumerate(draws) if weight > 0]
        for _, i in sorted(keys)[: self.num_samples]:
            yield i

    def __len__(self) -> int:
        return self.num_samples


def _log_arrival(u: float, rate: float) -> float:
    """The logarithm of an exponential variate of this rate, from u uniform in [0, 1); no rate is too small for it."""
    waited = -math.log1p(-u)
    return math.log(waited) - math.log(rate) if waited else -math.inf


class BatchSampler(Sampler[list[int]]):
    """Groups the indices of another sampler into lists; the last may be shorter unless ``drop_last``.

    >>> list(BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size!r}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"BatchSampler: drop_last should be a boolean value, but got drop_last={drop_last!r}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)  # type: ignore[arg-type]
        return whole if self.drop_last or not rest else whole + 1
