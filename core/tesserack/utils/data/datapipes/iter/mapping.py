"""Streams that change, join or choose single samples, and the one that begins a chain."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

from tesserack.utils.data.collate import default_collate
from tesserack.utils.data.datapipes._decorator import functional_datapipe
from tesserack.utils.data.datapipes.datapipe import IterDataPipe
from tesserack.utils.data.datapipes.utils.common import validate_input_col

__all__ = ["CollatorIterDataPipe", "FilterIterDataPipe", "IterableWrapperIterDataPipe", "MapperIterDataPipe"]


def no_length(pipe: Any) -> TypeError:
    """The error of ``len`` where the source has none."""
    return TypeError(f"{type(pipe).__name__} instance doesn't have valid length")


class IterableWrapperIterDataPipe(IterDataPipe[Any]):
    """A stream of what any iterable has, copied at each iteration unless ``deepcopy=False``.

    >>> list(IterableWrapperIterDataPipe(range(3)))
    [0, 1, 2]
    """

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable = iterable
        self.deepcopy = deepcopy

    def __iter__(self) -> Iterator[Any]:
        source = self.iterable
        if self.deepcopy:
            try:
                source = copy.deepcopy(self.iterable)
            except TypeError:
                warnings.warn(
                    "The input iterable can not be deepcopied, please be aware of in-place modification would affect "
                    "source data.",
                    stacklevel=2,
                )
        yield from source

    def __len__(self) -> int:
        if isinstance(self.iterable, Sized):
            return len(self.iterable)
        raise no_length(self)


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe[Any]):
    """``fn`` of each sample; functional form ``.map(fn)``.

    ``input_col`` names the parts of a sample that ``fn`` is given, ``output_col`` where its result goes: the place of
    the (first) input by default, -1 behind all others. Samples are not changed themselves.

    >>> source = IterableWrapperIterDataPipe([(1, 2), (3, 4)])
    >>> list(source.map(lambda n: -n, input_col=1)), list(source.map(sum))
    ([(1, -2), (3, -4)], [3, 7])
    """

    def __init__(self, datapipe: Any, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None) -> None:
        self.datapipe = datapipe
        self.fn = fn
        self.input_col = input_col
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        self.output_col = output_col
        validate_input_col(fn, input_col)

    def _changed(self, sample: Any) -> Any:
        if self.input_col is None:
            return self.fn(sample)
        several = isinstance(self.input_col, (list, tuple))
        found = self.fn(*(sample[c] for c in self.input_col)) if several else self.fn(sample[self.input_col])
        parts: Any = list(sample) if isinstance(sample, tuple) else copy.copy(sample)
        if self.output_col == -1:
            parts.append(found)
        elif self.output_col is not None:
            parts[self.output_col] = found
        elif not several:
            parts[self.input_col] = found
        else:
            parts[self.input_col[0]] = found
            for column in sorted(self.input_col[1:], reverse=True):
                del parts[column]
        return tuple(parts) if isinstance(sample, tuple) else parts

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            yield self._changed(sample)

    def __len__(self) -> int:
        if isinstance(self.datapipe, Sized):
            return len(self.datapipe)
        raise no_length(self)


def _by_names(conversion: dict[Any, Any], batch: Any) -> dict[Any, Any]:
    """Columns of a batch of dicts, or of sequences where names are numbers, each joined as the conversion says."""
    first = batch[0]
    names = first.keys() if hasattr(first, "keys") else range(len(first))
    unknown = [name for name in conversion if name not in names]
    if unknown:
        raise RuntimeError(f"collate: the conversion names {unknown}, which the samples do not have: {[*names]}")
    joined = {}
    for name in names:
        join = conversion.get(name, default_collate)
        joined[name] = join([sample[name] for sample in batch])
    return joined


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Batches joined to tensors, by :func:`default_collate` or another function; functional form ``.collate()``.

    ``conversion`` may be a dict of functions by the names of columns: batches of dicts then become dicts of columns.

    >>> list(IterableWrapperIterDataPipe([[1, 2], [3, 4]]).collate())
    [tensor([1, 2]), tensor([3, 4])]
    """

    def __init__(
        self,
        datapipe: Any,
        conversion: Callable[..., Any] | dict[Any, Any] | None = default_collate,
        collate_fn: Callable[..., Any] | None = None,
    ) -> None:
        join: Any = collate_fn if collate_fn is not None else conversion
        if not callable(join):
            join = _Columns(join or {})
        super().__init__(datapipe, fn=join)


@dataclass(frozen=True)
class _Columns:
    """A conversion as a function that can be sent to worker processes."""

    conversion: dict[Any, Any]

    def __call__(self, batch: Any) -> dict[Any, Any]:
        return _by_names(self.conversion, batch)


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe[Any]):
    """The samples for which ``filter_fn`` is true; functional form ``.filter(filter_fn)``.

    ``input_col`` names the parts of a sample that ``filter_fn`` is given.

    >>> list(IterableWrapperIterDataPipe(range(5)).filter(lambda n: n % 2 == 0))
    [0, 2, 4]
    """

    def __init__(self, datapipe: Any, filter_fn: Callable[..., Any], input_col: Any = None) -> None:
        self.datapipe = datapipe
        self.filter_fn = filter_fn
        self.input_col = input_col
        validate_input_col(filter_fn, input_col)

    def _keeps(self, sample: Any) -> bool:
        if self.input_col is None:
            answer = self.filter_fn(sample)
        elif isinstance(self.input_col, (list, tuple)):
            answer = self.filter_fn(*(sample[c] for c in self.input_col))
        else:
            answer = self.filter_fn(sample[self.input_col])
        if not isinstance(answer, bool):
            raise ValueError(
                f"Boolean output is required for `filter_fn` of FilterIterDataPipe, got {type(answer).__name__}"
            )
        return answer

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            if self._keeps(sample):
                yield sample
