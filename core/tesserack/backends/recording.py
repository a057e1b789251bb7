"""Recording a device's work once, to do it again without the Python, shapes and dispatch that led to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack import _native
from tesserack.backends.streams import stream

__all__ = ["Recording", "record"]


class Recording:
    """What :func:`record` recorded. ``result`` is what the function returned: every replay writes to the same tensors.

    Attributes:
        result: what the function returned when it was recorded.
        by_launches: whether the card itself wrote the work down; else the core did, kernel call by kernel call.
        steps: how many calls the core wrote down.
        prepared: of these, how many the kernel worked out ahead (``ts_kernel.prepare``).
    """

    def __init__(self, native: Any, side: Any, result: Any) -> None:
        self._native, self._side, self.result = native, side, result

    def replay(self) -> Any:
        """Do the work again, in the order of this thread's current stream, and give ``result``."""
        if self._side is None:
            self._native.replay()
            return self.result
        current = _native.current_stream(self._side.device)
        self._side.wait_stream(current)
        with stream(self._side):
            self._native.replay()
        current.wait_stream(self._side)
        return self.result

    @property
    def by_launches(self) -> bool:
        return bool(self._native.by_launches)

    @property
    def steps(self) -> int:
        return int(self._native.steps)

    @property
    def prepared(self) -> int:
        return int(self._native.prepared)


def record(function: Callable[[], Any], device: Any) -> Recording:
    """Call ``function`` once, and keep what it has ``device`` do.

    A replay runs the same kernels on the same memory: write new inputs into the tensors that the function reads
    (``x.copy_(batch)``), and read its results from the tensors that it returned or wrote. Random numbers are new in
    every replay, as if the function had been called. Numbers that Python computed are those of the first call, such as
    an optimizer's count of steps. Tensors that the function reads must stay alive; what it allocates does so as long
    as the recording.

    Args:
        function: without arguments. Its work on other devices is not recorded.
        device: whose work is recorded.

    Raises:
        RuntimeError: where the function reads values (``item``), copies from the host or waits; where the device's
            random numbers cannot be told apart from replay to replay; within another recording of this thread.

    >>> import tesserack as ts
    >>> x = ts.ones(3)
    >>> doubled = record(lambda: x * 2, "cpu")
    >>> _ = x.fill_(5)
    >>> doubled.replay().tolist()
    [10.0, 10.0, 10.0]
    """
    if _native._is_recording():
        raise RuntimeError("recording: this thread is recording already")
    native = _native._Recording(_native.device(device))
    side = _side_stream(device) if native.by_launches else None
    with stream(side):
        native.begin()
        try:
            result = function()
            native.end()
        except BaseException:
            native.cancel()
            raise
    if side is not None:
        _native.current_stream(side.device).wait_stream(side)
    return Recording(native, side, result)


def _side_stream(device: Any) -> Any:
    """A stream that only the recording uses, after what was queued so far."""
    side = _native.Stream(_native.device(device))
    side.wait_stream(_native.current_stream(side.device))
    return side
