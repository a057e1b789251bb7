"""How a server runs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ServerOptions"]


@dataclass(frozen=True)
class ServerOptions:
    """What all models of a server share.

    Args:
        devices: names of devices; each has its workers.
        workers: processes per device.
        frontends: processes that speak HTTP and gRPC.
        host: 127.0.0.1, 0.0.0.0 or ``::``.
        port: of HTTP.
        grpc_port: of gRPC; 0: none.
        queue: requests that may wait or run in the whole server; more are answered 503.
        timeout: seconds after which a request is answered 504.
        drain: seconds that what was accepted has after SIGTERM.
        grace: seconds between SIGTERM, when ``ready`` becomes false, and the end of listening.
        max_request: bytes of a request at most.
        repository: folder of models that may be loaded, or empty.
        trace: folder for traces, or empty.
        read_ahead: requests that a worker takes from the queue before it can run them.
    """

    devices: tuple[str, ...] = ("cpu",)
    workers: int = 1
    frontends: int = 1
    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int = 8001
    queue: int = 1024
    timeout: float = 30.0
    drain: float = 30.0
    grace: float = 0.0
    max_request: int = 64 << 20
    repository: str = ""
    trace: str = ""
    read_ahead: int = 64
