"""What goes wrong around compilers, under PyTorch's names."""

from __future__ import annotations

from typing import Any

__all__ = ["BackendCompilerFailed", "InvalidBackend", "NotProved", "TorchDynamoException", "Unsupported"]


class TorchDynamoException(RuntimeError):
    """What all of them are."""


class Unsupported(TorchDynamoException):
    """A function that is to be one graph cannot be."""

    def __init__(self, msg: str, *args: Any) -> None:
        super().__init__(msg)
        self.msg = msg


class InvalidBackend(TorchDynamoException):
    """There is no compiler of that name."""


class BackendCompilerFailed(TorchDynamoException):
    """A compiler raised; ``inner_exception`` is what."""

    def __init__(self, backend_fn: Any, inner_exception: BaseException) -> None:
        self.backend_name = getattr(backend_fn, "__name__", "?")
        self.inner_exception = inner_exception
        super().__init__(f"backend={self.backend_name!r} raised:\n{type(inner_exception).__name__}: {inner_exception}")


class NotProved(Exception):
    """That a run may be repeated as a graph is not proved; ``passing`` if the next run may show it, ``final`` if no
    closer look at it would. ``own``: because of what Python does to objects of its own, such as to set an attribute,
    which graphs of PyTorch's repeat.
    """

    def __init__(self, reason: str, passing: bool = False, final: bool = False, own: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.passing, self.final, self.own = reason, passing, final, own

    def told_as(self, reason: str) -> NotProved:
        """The same with another reason."""
        return NotProved(reason, self.passing, self.final, self.own)
