"""What iterating over a datapipe does besides: one iterator at a time, which begins with ``reset()``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["one_at_a_time"]


class _Counted:
    """The iterator over a datapipe, for as long as it is the newest one that began."""

    def __init__(self, start: Callable[[Any], Any], pipe: Any) -> None:
        self._start, self._pipe = start, pipe
        self._source: Any = None
        self._number = -1

    def __iter__(self) -> Iterator[Any]:
        return self

    def _begin(self) -> None:
        state = self._pipe.__dict__
        self._number = state.get("_valid_iterator_id", -1) + 1
        state.update(_valid_iterator_id=self._number, _number_of_samples_yielded=0)
        self._pipe.reset()
        source = self._start(self._pipe)
        if not hasattr(source, "__next__"):
            raise TypeError(f"{type(self._pipe).__name__}.__iter__ returned a non-iterator of {type(source).__name__}")
        self._source = source

    def __next__(self) -> Any:
        if self._source is None:
            self._begin()
        if self._pipe.__dict__["_valid_iterator_id"] != self._number:
            raise RuntimeError(
                f"This iterator has been invalidated because another iterator has been created from the same "
                f"{type(self._pipe).__name__}. This may be caused multiple references to the same IterDataPipe; "
                "use .fork() for several readers"
            )
        sample = next(self._source)
        self._pipe.__dict__["_number_of_samples_yielded"] += 1
        return sample


def one_at_a_time(start: Callable[[Any], Any]) -> Callable[[Any], Iterator[Any]]:
    """``__iter__`` of a datapipe such that an iterator ends the one before, and begins with ``reset()``."""

    @functools.wraps(start)
    def begin(self: Any) -> Iterator[Any]:
        if type(self).__iter__ is not begin:  # super().__iter__() of a subclass
            return start(self)  # type: ignore[no-any-return]
        return _Counted(start, self)

    return begin
