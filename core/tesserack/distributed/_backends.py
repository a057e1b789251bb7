"""Communicators by name: those that come with the package, and those of plugins."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tesserack.distributed._engine import Engine
from tesserack.distributed._fake import FakeEngine
from tesserack.distributed._local import ElsewhereError, LocalEngine
from tesserack.distributed._tcp import TCPEngine

__all__ = ["COMMUNICATOR", "DEFAULT_BACKEND", "Backend", "automatic", "is_known"]

#: The variable that names the communicator of groups that would take what fits.
COMMUNICATOR = "TESSERACK_COMM"
DEFAULT_BACKEND = "gloo"
Maker = Callable[[Any, str, int, int, float], Engine]


def automatic(store: Any, prefix: str, rank: int, size: int, timeout: float) -> Engine:
    """The engine that fits where ranks are, the same on each; ``TESSERACK_COMM`` decides for all."""
    asked = os.environ.get(COMMUNICATOR, "").lower()
    if asked:
        return _named(asked)(store, prefix, rank, size, timeout)
    try:
        return LocalEngine(store, prefix, rank, size, timeout)
    except ElsewhereError:
        return TCPEngine(store, prefix, rank, size, timeout)


def _named(name: str) -> Maker:
    if not is_known(name) or Backend.makers[name] is automatic:
        known = ", ".join(sorted(k for k, maker in Backend.makers.items() if maker is not automatic))
        raise ValueError(f"init_process_group: expected {COMMUNICATOR} to be one of {known}, got {name!r}")
    return Backend.makers[name]


class Backend(str):
    """The name of a communicator, in lower case. ``gloo`` and ``nccl`` are taken for what fits where ranks are:
    ``local``, shared memory of one machine, or ``tcp``. Cards that have a communicator of their own (NCCL) do their
    tensors' collectives with it, unless ``TESSERACK_COMM`` names another; tensors of other cards go through the host.

    >>> Backend("GLOO"), Backend.NCCL
    ('gloo', 'nccl')
    """

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    LOCAL = "local"
    TCP = "tcp"
    FAKE = "fake"
    makers: dict[str, Maker] = {  # noqa: RUF012
        "gloo": automatic,
        "nccl": automatic,
        "local": LocalEngine,
        "tcp": TCPEngine,
        "fake": FakeEngine,
    }
    backend_list: list[str] = ["undefined", "gloo", "nccl", "local", "tcp", "fake"]  # noqa: RUF012

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend: expected a name, got {name!r}")
        return str.__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name: str, func: Maker, extended_api: bool = False, devices: Any = None) -> None:
        """Make a communicator known: ``func(store, prefix, rank, size, timeout)`` returns an engine."""
        key = name.lower()
        if key in cls.makers:
            raise RuntimeError(f"{name} c10d backend already exists")
        cls.makers[key] = func
        setattr(cls, name.upper(), key)
        cls.backend_list.append(key)


def is_known(name: str) -> bool:
    """Whether a communicator of this name, in lower case, is there; plugins are asked for one that is not."""
    if name not in Backend.makers:
        from tesserack import plugins

        plugins.load()
        for found, maker in plugins.communicators().items():
            if found not in Backend.makers:
                Backend.register_backend(found, maker)
    return name in Backend.makers
