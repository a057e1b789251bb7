"""What a collective on a card's stream leaves: waits are the stream's that asks, not the program's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.distributed._work import Work
from tesserack.utils._pytree import tree_flatten
from tesserack.utils.futures import Future

__all__ = ["CardWork"]


class _Place:
    """Where on a stream something is done."""

    def __init__(self, device: Any, stream: Any, event: Any) -> None:
        self.device, self.stream, self.event = device, stream, event

    def join(self, result: Any) -> None:
        """What the current stream is given from here on comes after it, and may use the result."""
        here = ts.current_stream(self.device)
        here.wait_event(self.event)
        for leaf in tree_flatten(result)[0]:
            if isinstance(leaf, Tensor) and leaf.device == self.device:
                _native._record_stream(leaf, here)


class _CardFuture(Future[Any]):
    """Callbacks run at once, and what they give to the device goes to the collective's stream, after it."""

    def __init__(self, place: _Place, result: Any, error: BaseException | None = None) -> None:
        super().__init__()
        self._place = place
        self._finish(result, error)

    def wait(self) -> Any:
        result = self.value()
        self._place.join(result)
        return result

    def then(self, callback: Callable[[Future[Any]], Any]) -> Future[Any]:
        place = self._place
        with place.stream:
            done = super().then(callback)
            event = place.stream.record_event()
        return _CardFuture(_Place(place.device, place.stream, event), done._result, done._error)


class CardWork(Work):
    """``wait()`` returns at once: what the current stream is given afterwards comes after the collective."""

    def __init__(self, device: Any, stream: Any, event: Any, result: Any, watch: Any) -> None:
        super().__init__(result)
        self._place, self._watch = _Place(device, stream, event), watch

    def wait(self, timeout: Any = None) -> bool:
        self._watch.check()
        self._place.join(self._result)
        return True

    def is_completed(self) -> bool:
        """Whether the device has done it, or it has failed."""
        return self._watch.failed or bool(self._place.event.query())

    def is_success(self) -> bool:
        return not self._watch.failed and bool(self._place.event.query())

    def exception(self) -> BaseException | None:
        error: BaseException | None = self._watch.error
        return error

    def get_future(self) -> Any:
        self._watch.check()
        return _CardFuture(self._place, self._result)
