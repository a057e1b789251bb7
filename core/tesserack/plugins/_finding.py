"""What a check of ``tesserack doctor`` reports."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LEVELS", "Finding"]

LEVELS = ("ok", "info", "warning", "error")


@dataclass(frozen=True)
class Finding:
    """One line of a report: how bad it is, what it is about, what was found, and what to do.

    ``ValueError`` for a level other than ok, info, warning or error.

    >>> Finding("warning", "disk", "the cache is full", "delete ~/.cache/acme").level
    'warning'
    """

    level: str
    subject: str
    message: str
    cure: str = ""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"Finding: expected a level among {', '.join(LEVELS)}, got {self.level!r}")
