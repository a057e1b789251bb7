"""Who takes part in calls, and by what they are told apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["WorkerInfo"]

_NAME = re.compile(r"[A-Za-z0-9\-_:]+")
_LONGEST = 128


@dataclass(frozen=True, repr=False)
class WorkerInfo:
    """A worker's name and its number. ``RuntimeError`` for a name that no worker may have.

    >>> WorkerInfo("trainer", 1)
    WorkerInfo(id=1, name=trainer)
    """

    name: str
    id: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise RuntimeError(f"rpc: Worker name must match ^[A-Za-z0-9-_:]*$, but got {self.name!r}")
        if len(self.name) > _LONGEST:
            raise RuntimeError(f"rpc: RPC worker name must be at most {_LONGEST} characters long, got {len(self.name)}")

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"
