"""The communicator of a group that names none: shared memory where all ranks are on one machine, else TCP."""

from __future__ import annotations

import os
from typing import Any

from tesserack.distributed._engine import Engine
from tesserack.distributed._local import ElsewhereError, LocalEngine
from tesserack.distributed._tcp import TCPEngine

__all__ = ["automatic"]

VARIABLE = "TESSERACK_COMM"
_NAMED = {"local": LocalEngine, "tcp": TCPEngine}


def automatic(store: Any, prefix: str, rank: int, size: int, timeout: float) -> Engine:
    """The engine that fits where ranks are, the same on each; ``TESSERACK_COMM=tcp`` or ``local`` decides for all."""
    asked = os.environ.get(VARIABLE, "")
    if asked:
        if asked not in _NAMED:
            raise ValueError(f"init_process_group: expected {VARIABLE} to be local or tcp, got {asked!r}")
        return _NAMED[asked](store, prefix, rank, size, timeout)
    try:
        return LocalEngine(store, prefix, rank, size, timeout)
    except ElsewhereError:
        return TCPEngine(store, prefix, rank, size, timeout)
