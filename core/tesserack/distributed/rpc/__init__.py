"""Functions in other processes: calls, references to values that lie there, and gradients through both.

By ``torch.distributed.rpc``'s names. Each process calls :func:`init_rpc` with a name of its own, started as
``tesserack launch`` starts ranks, or with ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` set.
"""

from __future__ import annotations

from tesserack.distributed._rendezvous import meet
from tesserack.distributed.rpc import api, constants, functions
from tesserack.distributed.rpc._begin import JOIN, begin
from tesserack.distributed.rpc._current import current as _get_current_rpc_agent  # noqa: F401
from tesserack.distributed.rpc._current import is_current
from tesserack.distributed.rpc._workers import WorkerInfo
from tesserack.distributed.rpc.api import _is_current_rpc_agent_set as _is_current_rpc_agent_set
from tesserack.distributed.rpc.api import _set_rpc_timeout as _set_rpc_timeout
from tesserack.distributed.rpc.api import (
    get_rpc_timeout,
    get_worker_info,
    rpc_async,
    rpc_sync,
    shutdown,
)
from tesserack.distributed.rpc.backend_registry import BackendType
from tesserack.distributed.rpc.options import RpcBackendOptions, TensorPipeRpcBackendOptions
from tesserack.distributed.rpc.rref import RRef, remote

__all__ = [
    "BackendType",
    "RRef",
    "RpcBackendOptions",
    "TensorPipeRpcBackendOptions",
    "WorkerInfo",
    "api",
    "constants",
    "functions",
    "get_rpc_timeout",
    "get_worker_info",
    "init_rpc",
    "is_available",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]


def is_available() -> bool:
    """Always True.

    >>> is_available()
    True
    """
    return True


def init_rpc(
    name: str,
    backend: BackendType | None = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """Take part in calls as the worker ``name``; returns when all workers are there.

    ``rank`` and ``world_size`` come from the launcher where they are not said; the options say how workers meet.

    Raises:
        RuntimeError: for a name that another worker has, where workers do not come, or if it was called already.
        ValueError: where rank or world size are said by nobody.

    >>> from tesserack.distributed import rpc
    >>> import tempfile
    >>> meet = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tempfile.mkdtemp()}/meet")
    >>> rpc.init_rpc("only", rank=0, world_size=1, rpc_backend_options=meet)
    >>> rpc.rpc_sync("only", sum, args=([1, 2],))
    3
    >>> rpc.shutdown()
    """
    if backend is not None and not isinstance(backend, BackendType):
        raise TypeError(f"init_rpc: Argument backend must be a member of BackendType, got {backend!r}")
    options = rpc_backend_options or TensorPipeRpcBackendOptions()
    if not isinstance(options, TensorPipeRpcBackendOptions):
        options = TensorPipeRpcBackendOptions(rpc_timeout=options.rpc_timeout, init_method=options.init_method)
    if is_current():
        raise RuntimeError("init_rpc: RPC is already initialized")
    store, rank, size = meet(options.init_method, rank, -1 if world_size is None else world_size, timeout=JOIN)
    begin(store, name, rank, size, options)
