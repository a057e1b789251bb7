"""Choosing a stream for a block of code, and the guard that reports copies, hidden waits and fallbacks."""

from __future__ import annotations

from tesserack import _native
from tesserack._native import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["stream", "transfer_guard"]

_MODES = ("off", "log", "error")
_KINDS = ("copy", "synchronize", "fallback")


class stream:
    """Context manager: this thread's work on the stream's device goes to it. ``None`` changes nothing.

    >>> import tesserack as ts
    >>> side = ts.Stream("cpu")
    >>> with ts.stream(side):
    ...     x = ts.ones(2) * 2
    """

    def __init__(self, stream: Stream | None) -> None:
        if stream is not None and not isinstance(stream, Stream):
            raise TypeError(f"stream: expected a Stream or None, got {type(stream).__name__}")
        self.stream = stream
        self._before: list[Stream] = []

    def __enter__(self) -> Stream | None:
        if self.stream is not None:
            self._before.append(_native.current_stream(self.stream.device))
            _native.set_stream(self.stream)
        return self.stream

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            _native.set_stream(self._before.pop())


class transfer_guard:
    """Report what this thread does behind the scenes, or refuse it.

    ``mode`` is ``"log"`` (a warning of the logger ``tesserack``), ``"error"`` (``RuntimeError``) or ``"off"``;
    ``kinds`` chooses among ``"copy"`` (a tensor goes to another device), ``"synchronize"`` (values are read from a
    device, as by ``item()`` or printing) and ``"fallback"`` (a kernel runs on the cpu for want of one). Every message
    names the operator, the shapes and the line of the program. Takes effect when made; leaving it as a context manager
    restores what was before. ``ValueError`` for other modes and kinds.

    >>> import tesserack as ts
    >>> with ts.transfer_guard("error"):
    ...     x = ts.ones(2) + 1  # nothing leaves the device
    """

    def __init__(self, mode: str, kinds: Iterable[str] = _KINDS) -> None:
        kinds = [kinds] if isinstance(kinds, str) else list(kinds)
        if mode not in _MODES:
            raise ValueError(f"transfer_guard: expected a mode among {', '.join(_MODES)}, got {mode!r}")
        for kind in kinds:
            if kind not in _KINDS:
                raise ValueError(f"transfer_guard: expected kinds among {', '.join(_KINDS)}, got {kind!r}")
        self._before = [
            (_KINDS.index(kind), _native._transfer_guard(_KINDS.index(kind), _MODES.index(mode))) for kind in kinds
        ]

    def __enter__(self) -> transfer_guard:
        return self

    def __exit__(self, *error: object) -> None:
        for kind, mode in self._before:
            _native._transfer_guard(kind, mode)
