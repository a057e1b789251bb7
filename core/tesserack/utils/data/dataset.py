"""Where samples come from."""

from __future__ import annotations

import itertools
import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import tesserack as ts
from tesserack import Tensor

__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples by index: subclasses define ``__getitem__`` and ``__len__``.

    A dataset may also define ``__getitems__(indices)``, which returns a list of samples at once. Adding two datasets
    gives a :class:`ConcatDataset`.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__}: define __getitem__(index)")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Samples as a stream: subclasses define ``__iter__``.

    With several loader workers each iterates it; use :func:`get_worker_info` to give every worker its own part.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__}: define __iter__()")

    def __add__(self, other: Dataset[T_co]) -> ChainDataset[T_co]:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Rows of tensors that agree in their first dimension.

    >>> from tesserack import arange
    >>> data = TensorDataset(arange(6).reshape(3, 2), arange(3))
    >>> [part.tolist() for part in data[1]], len(data)
    ([[2, 3], 1], 3)
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors:
            raise ValueError("TensorDataset: expected at least one tensor")
        sizes = [tuple(tensor.shape) for tensor in tensors]
        if any(not size or size[0] != sizes[0][0] for size in sizes):
            raise AssertionError(
                f"TensorDataset: Size mismatch between tensors, expected one first dimension, got {sizes}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class StackDataset(Dataset[Any]):
    """Samples of several datasets side by side, as tuples, or as dicts when given by name.

    >>> StackDataset([1, 2], [3, 4])[0], StackDataset(a=[1, 2])[1]
    ((1, 3), {'a': 2})
    """

    datasets: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: expected datasets by position or by name, not both or none")
        self.datasets = args or kwargs
        lengths = {len(dataset) for dataset in args or kwargs.values()}
        if len(lengths) != 1:
            raise ValueError(f"StackDataset: Size mismatch between datasets, got lengths {sorted(lengths)}")
        self._length = lengths.pop()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        """The samples at ``indices``, by one call of each dataset that can give several."""
        if _gives_one_by_one(self, StackDataset):
            return [self[i] for i in indices]
        if isinstance(self.datasets, dict):
            columns = [_several(dataset, indices) for dataset in self.datasets.values()]
            return [dict(zip(self.datasets, row, strict=True)) for row in zip(*columns, strict=True)]
        return list(zip(*(_several(dataset, indices) for dataset in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


def _gives_one_by_one(dataset: Any, base: Any) -> bool:
    """Whether a subclass says what a sample is, and not what several are."""
    kind = type(dataset)
    return kind.__getitem__ is not base.__getitem__ and kind.__getitems__ is base.__getitems__


def _several(dataset: Any, indices: Sequence[Any]) -> Sequence[Any]:
    many = getattr(dataset, "__getitems__", None)
    if many is None:
        return [dataset[i] for i in indices]
    found: Sequence[Any] = many(indices)
    if len(found) != len(indices):
        raise ValueError(f"StackDataset: asked for {len(indices)} samples, {type(dataset).__name__} gave {len(found)}")
    return found


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other.

    >>> joined = ConcatDataset([[1, 2], [3]])
    >>> len(joined), joined[2], joined[-3]
    (3, 3, 1)
    """

    datasets: list[Any]
    cumulative_sizes: list[int]

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("ConcatDataset: datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset; use ChainDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """The running sums of lengths."""
        return list(itertools.accumulate(len(dataset) for dataset in sequence))

    def __getitem__(self, index: int) -> T_co:
        size = len(self)
        if index < -size:
            raise ValueError(f"ConcatDataset: absolute value of index should not exceed {size} samples, got {index}")
        if index >= size:
            raise IndexError(f"ConcatDataset: index {index} is out of range for {size} samples")
        index %= size
        which = bisect_right(self.cumulative_sizes, index)
        start = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - start]  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    @property
    def cummulative_sizes(self) -> list[int]:
        """What ``cumulative_sizes`` was called once."""
        warnings.warn("`cummulative_sizes` attribute is renamed to `cumulative_sizes`", DeprecationWarning, 2)
        return self.cumulative_sizes


class ChainDataset(IterableDataset[T_co]):
    """Streams one after the other; each is asked for its first sample when the one before has ended.

    Iterating and the length raise ``AssertionError`` for what is no :class:`IterableDataset`.

    >>> class Count(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(ChainDataset([Count(), Count()]))
    [0, 1, 0, 1]
    """

    datasets: Iterable[Any]

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def _streams(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError(f"ChainDataset only supports IterableDataset, got {type(dataset).__name__}")
            yield dataset

    def __iter__(self) -> Iterator[T_co]:
        return itertools.chain.from_iterable(self._streams())

    def __len__(self) -> int:
        return sum(map(len, self._streams()))


class Subset(Dataset[T_co]):
    """The samples of ``dataset`` at ``indices``.

    >>> part = Subset("abcd", [3, 1])
    >>> list(part), len(part)
    (['d', 'b'], 2)
    """

    dataset: Any
    indices: Sequence[int]

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]  # type: ignore[no-any-return]
        return self.dataset[self.indices[index]]  # type: ignore[no-any-return]

    def __getitems__(self, indices: Sequence[int]) -> list[T_co]:
        if _gives_one_by_one(self, Subset):
            return [self[i] for i in indices]
        chosen = [self.indices[i] for i in indices]
        several = getattr(self.dataset, "__getitems__", None)
        return several(chosen) if several is not None else [self.dataset[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset[Any]]:
    """Cut ``dataset`` at random into subsets of the given lengths, or of the given fractions of it.

    Fractions sum to 1; the samples left over by rounding down go one each to the first subsets. Raises
    ``ValueError`` when lengths do not sum to the length of the dataset.

    >>> [len(part) for part in random_split(range(10), [0.75, 0.25])]
    [8, 2]
    """
    size = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9 and not all(isinstance(n, int) for n in lengths):
        counts = _counts_of_fractions(lengths, size)
    elif sum(lengths) == size:
        counts = [int(length) for length in lengths]
    else:
        raise ValueError(
            "random_split: Sum of input lengths does not equal the length of the input dataset! "
            f"Expected {size}, got {list(lengths)}"
        )
    for i, count in enumerate(counts):
        if count == 0:
            warnings.warn(f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=2)
    order = ts.randperm(size, generator=generator).tolist()
    ends = list(itertools.accumulate(counts))
    return [Subset(dataset, order[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def _counts_of_fractions(fractions: Sequence[float], size: int) -> list[int]:
    if any(not 0 <= fraction <= 1 for fraction in fractions):
        raise ValueError(f"random_split: expected fractions between 0 and 1, got {list(fractions)}")
    counts = [math.floor(size * fraction) for fraction in fractions]
    for i in range(size - sum(counts)):
        counts[i % len(counts)] += 1
    return counts
