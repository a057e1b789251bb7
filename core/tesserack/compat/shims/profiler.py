"""``torch.profiler``: operators under PyTorch's names for them, and what packages ask before they profile."""

from __future__ import annotations

from typing import Any

from tesserack.utils import profiler

__all__ = ["kineto_available", "profile"]


class profile(profiler.profile):
    """Tesserack's, whose operators are called ``aten::add``."""

    _namespace = "aten::"

    @property
    def profiler(self) -> profile:
        """The profile itself, which has what PyTorch's inner one has."""
        return self

    @property
    def function_events(self) -> Any:
        """:meth:`events`, as programs ask the inner one."""
        return self.events()


def kineto_available() -> bool:
    """True: kernels are recorded."""
    return True
