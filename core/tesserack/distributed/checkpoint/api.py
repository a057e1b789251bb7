"""What goes wrong with checkpoints."""

from __future__ import annotations

import traceback as tb
from typing import Any

__all__ = ["CheckpointException"]


class CheckpointException(BaseException):
    """A step of saving or loading that failed on some ranks: :attr:`failures` has each rank's error, with its trace."""

    def __init__(self, msg: str, failures: dict[int, Any]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, Any]:
        """By rank, the error and its trace."""
        return self._failures

    def __str__(self) -> str:
        text = f"CheckpointException ranks:{list(self._failures)}\n"
        for rank, (error, trace) in self._failures.items():
            shown = "".join(tb.format_list(trace)) if trace else ""
            text += f"{shown}{type(error).__name__}: {error} (rank {rank})\n"
        return text
