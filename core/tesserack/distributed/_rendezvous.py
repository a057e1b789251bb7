"""How ranks find each other: from the environment, a file, an address, or what MPI, Slurm or Ray say."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tesserack.distributed import _slurm
from tesserack.distributed._errors import DistError
from tesserack.distributed._file_store import FileStore
from tesserack.distributed._tcp_store import TCPStore

__all__ = [
    "Meeting",
    "launched",
    "local_rank",
    "meet",
    "register_rendezvous_handler",
    "rendezvous",
    "started_by_mpi",
    "store_for",
]

_FAILED = "Error initializing torch.distributed"

# Of a launcher: rank, size, and rank on the machine. The first whose first two are set is taken.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),  # the second is not there outside of srun
)


def started_by_mpi(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the first launcher that the environment tells of is MPI's."""
    first = next((rank for rank, size, _ in _LAUNCHERS if rank in environ and size in environ), "")
    return first.startswith(("OMPI_", "PMI_", "PMIX_"))


class Meeting(NamedTuple):
    """Where a rank stands among the others."""

    store: Any
    rank: int
    size: int


def launched(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Rank and size as a launcher has put them into the environment."""
    for rank, size, _ in _LAUNCHERS:
        if rank in environ and size in environ:
            return int(environ[rank]), int(environ[size])
    return None


def local_rank(environ: Mapping[str, str] = os.environ) -> int:
    """This process's number among those of its machine, as its launcher says; 0 without one."""
    return next((int(environ[local]) for _, _, local in _LAUNCHERS if local in environ), 0)


def _resolve(host: str, what: str = "MASTER_ADDR") -> str:
    """The host, which must have an address: a name that nobody knows would leave each rank alone with itself."""
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        raise DistError(
            f"init_process_group: expected {what} to be a host that this machine can resolve, got {host!r} "
            f"({error}); try its address as MASTER_ADDR, or an entry in /etc/hosts"
        ) from None
    return host


def _needed(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValueError(
            f"{_FAILED} using env:// rendezvous: environment variable {name} expected, but "
            "not set; start the program with `tesserack launch`, mpiexec or srun, or set it"
        )
    return value


def _place() -> tuple[str, int]:
    """Where the first rank keeps the store: as said, or as Slurm's list of nodes tells."""
    first = _slurm.master(os.environ)
    if first is None or "MASTER_ADDR" in os.environ:
        return _resolve(_needed("MASTER_ADDR")), int(_needed("MASTER_PORT"))
    return _resolve(first, "the first node of SLURM_STEP_NODELIST"), int(
        os.environ.get("MASTER_PORT", _slurm.port(os.environ))
    )


def _from_environment(rank: int, size: int, timeout: timedelta) -> Meeting:
    told = launched(os.environ)
    if rank < 0:
        rank = told[0] if told else int(_needed("RANK"))
    if size < 0:
        size = told[1] if told else int(_needed("WORLD_SIZE"))
    host, port = _place()
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return Meeting(TCPStore(host, port, size, serves, timeout, False, multi_tenant=True), rank, size)


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[Meeting]:
    """One time store, rank and size, when :func:`meet` has met: ``store, rank, size = next(rendezvous(url))``.

    ``RuntimeError`` for an address of a kind that nobody knows.
    """
    scheme = urlsplit(url).scheme
    if scheme in _handlers:
        found: Iterator[Meeting] = _handlers[scheme](url, rank=rank, world_size=world_size, **kwargs)
        return found
    _check_scheme(url)
    return (meet(url, rank, world_size, **kwargs) for _ in range(1))


_handlers: dict[str, Callable[..., Any]] = {}  # of kinds of addresses that a user knows


def register_rendezvous_handler(scheme: str, handler: Callable[..., Any]) -> None:
    """``handler(url, **kwargs)`` yields store, rank and size for addresses ``scheme://``. ``RuntimeError`` for one that
    is known."""
    if scheme in _handlers or scheme in ("env", "tcp", "file"):
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def _check_scheme(url: str) -> None:
    scheme = urlsplit(url).scheme
    if scheme not in ("env", "tcp", "file"):
        raise RuntimeError(f"No rendezvous handler for {scheme}:// ; expected env://, tcp:// or file://")


def meet(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Meeting:
    """Meet at ``env://``, ``tcp://host:port`` or ``file:///path``; numbers may stand in the query (``?rank=0``).

    ``timeout`` bounds the wait. Raises ``ValueError`` where a number is missing, ``DistError`` where a host does not
    resolve.
    """
    if urlsplit(url).scheme in _handlers:
        return Meeting(*next(rendezvous(url, rank, world_size, **kwargs)))
    parts, size, timeout = urlsplit(url), world_size, kwargs.get("timeout", timedelta(minutes=30))
    told = {key: int(values[0]) for key, values in parse_qs(parts.query).items() if key in ("rank", "world_size")}
    if told and (rank >= 0 or size >= 0):
        raise AssertionError(
            f"init_process_group: expected rank and world_size in the address or beside it, got both: the url: {url} "
            "has node-specific arguments (rank, world_size) already"
        )
    rank, size = (rank if rank >= 0 else told.get("rank", -1)), (size if size >= 0 else told.get("world_size", -1))
    if parts.scheme == "env":
        return _from_environment(rank, size, timeout)
    _check_scheme(url)
    missing = "rank parameter" if rank < 0 else "world_size parameter" if size < 0 else ""
    if parts.scheme == "file":
        missing = missing if parts.netloc + parts.path else "path"
    elif not parts.hostname or not parts.port:
        missing = "host" if not parts.hostname else "port number"
    if missing:
        raise ValueError(
            f"Error initializing torch.distributed using {parts.scheme}:// rendezvous: {missing} missing, got {url}"
        )
    if parts.scheme == "file":
        return Meeting(FileStore(parts.netloc + parts.path, size), rank, size)
    assert parts.hostname and parts.port  # else missing
    store = TCPStore(_resolve(parts.hostname), parts.port, size, rank == 0, timeout, False, multi_tenant=True)
    return Meeting(store, rank, size)


def store_for(init_method: str | None, store: Any, rank: int, size: int, timeout: timedelta) -> Meeting:
    """The meeting that ``init_process_group`` is asked for."""
    if store is not None:
        if rank < 0 or size < 1:
            raise ValueError("init_process_group: expected rank and world_size beside store, got neither or one")
        return Meeting(store, rank, size)
    meeting = meet(init_method or "env://", rank, size, timeout=timeout)
    if not 0 <= meeting.rank < meeting.size:
        raise ValueError(
            f"init_process_group: expected a rank below the world's size, got {meeting.rank} of {meeting.size}"
        )
    return meeting
