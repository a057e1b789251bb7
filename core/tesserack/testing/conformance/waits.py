"""Counting how often an operator makes the host wait for the device."""

from __future__ import annotations

import logging

import tesserack as ts

__all__ = ["Waits"]


class Waits(logging.Filter):
    """Counts waits of this thread, as the transfer guard tells them, while it is entered. May be entered again.

    >>> x = ts.arange(3)
    >>> with Waits() as waits:
    ...     y = x + 1
    >>> waits.count
    0
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._guards: list[ts.transfer_guard] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Nobody else need read about it."""
        if record.name != "tesserack" or ": waits for " not in record.getMessage():
            return True
        self.count += 1
        return False

    def __enter__(self) -> Waits:
        logging.getLogger("tesserack").addFilter(self)
        self._guards.append(ts.transfer_guard("log", kinds="synchronize"))
        return self

    def __exit__(self, *error: object) -> None:
        self._guards.pop().__exit__(*error)
        logging.getLogger("tesserack").removeFilter(self)
