"""The outcome of one test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """The outcome of one test."""

    id: str
    area: str
    outcome: str
    message: str = ""
    seconds: float = 0.0
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What went wrong, in one line."""
        lines = [line for line in self.message.splitlines() if line.strip()]
        return lines[0].strip() if lines else self.outcome
