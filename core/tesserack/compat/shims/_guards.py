"""``torch._guards``: what surrounds a trace by PyTorch's compiler, asked by packages; here nothing does."""

from __future__ import annotations

from typing import Any

__all__: list[str] = []


def active_fake_mode() -> None:
    """The mode in which tensors have no values: None, since none is entered for a whole program."""


def detect_fake_mode(inputs: Any = None) -> None:
    """The mode of tensors without values among ``inputs``: None."""


class TracingContext:
    """What PyTorch's compiler knows while it traces."""

    @staticmethod
    def try_get() -> None:
        """The context of the trace that is under way: None."""
