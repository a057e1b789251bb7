"""Whether shapes are checked: the variable ``TESSERACK_SHAPES``, and a switch for a running process."""

from __future__ import annotations

import os

__all__ = ["are_shape_checks_enabled", "set_shape_checks_enabled", "state"]


class _State:
    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = os.environ.get("TESSERACK_SHAPES", "on").lower() not in ("off", "0", "false", "no")


state = _State()


def set_shape_checks_enabled(mode: bool) -> None:
    """Check shapes from here on, or not. What is decorated while they are off stays as it was, at no cost whatever;
    what was decorated before asks for one flag. ``TESSERACK_SHAPES=off`` turns them off from the start.

    >>> set_shape_checks_enabled(False)
    >>> are_shape_checks_enabled()
    False
    >>> set_shape_checks_enabled(True)
    """
    state.on = bool(mode)


def are_shape_checks_enabled() -> bool:
    """Whether shapes are checked."""
    return state.on
