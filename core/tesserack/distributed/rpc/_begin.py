"""The beginning: an agent for this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from tesserack.distributed._stores import HashStore
from tesserack.distributed.rpc._agent import Agent
from tesserack.distributed.rpc._current import make_current
from tesserack.distributed.rpc._meeting import Meeting
from tesserack.distributed.rpc.api import forget, shutdown
from tesserack.distributed.rpc.options import TensorPipeRpcBackendOptions
from tesserack.distributed.rpc.rref import RRef

__all__ = ["JOIN", "alone", "begin"]

JOIN = timedelta(minutes=5)  # for workers to come


def begin(store: Any, name: str, rank: int, size: int, options: TensorPipeRpcBackendOptions) -> None:
    """Meet the other workers at a store, and have calls made."""
    forget()
    agent = Agent(Meeting(store, name, rank, size, JOIN), options, RRef)
    make_current(agent)
    agent.open()


@contextlib.contextmanager
def alone(name: str = "alone") -> Iterator[str]:
    """As a context: this process is the only worker; its name."""
    begin(HashStore(), name, 0, 1, TensorPipeRpcBackendOptions())
    try:
        yield name
    finally:
        shutdown()
