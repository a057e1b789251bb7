"""Whether operations are recorded, and how gradients come about."""

from __future__ import annotations

import threading

from tesserack import _native
from tesserack._native import Tensor, enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]

_local = threading.local()


def is_multithreading_enabled() -> bool:
    """What :class:`set_multithreading_enabled` set last in this thread."""
    return getattr(_local, "multithreading", True)


class _unsafe_preserve_version_counter:
    """Context manager: writes inside are not seen in the versions of the tensors.

    >>> import tesserack as ts
    >>> x = ts.ones(1)
    >>> with _unsafe_preserve_version_counter(x):
    ...     _ = x.add_(1)
    >>> x._version
    0
    """

    def __init__(self, tensors: Tensor | tuple[Tensor, ...]) -> None:
        self._tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        self._versions = [tensor._version for tensor in self._tensors]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        for tensor, before in zip(self._tensors, self._versions, strict=True):
            _native._undo_versions(tensor, tensor._version - before)


class set_multithreading_enabled:
    """Say whether backward may use threads of its own, at once or as a context manager.

    Backward here always runs in the thread that calls it, and its kernels share their work among threads, so either
    choice computes the same in the same way.

    >>> with set_multithreading_enabled(False):
    ...     is_multithreading_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        self.prev, self.mode = is_multithreading_enabled(), mode
        _local.multithreading = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _local.multithreading = self.prev

    def clone(self) -> set_multithreading_enabled:
        """Another of the same mode."""
        return type(self)(self.mode)
