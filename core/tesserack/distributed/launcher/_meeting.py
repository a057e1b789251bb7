"""How the launchers of several machines agree on who is there, and learn of each other's failures."""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from typing import Any, NamedTuple

from tesserack.distributed._errors import DistError, DistNetworkError
from tesserack.distributed._tcp_store import TCPStore
from tesserack.distributed.launcher._options import LaunchConfig

__all__ = ["Meeting", "Place"]

LAST_CALL = 5.0  # seconds that those who are enough wait for more


class Place(NamedTuple):
    """Where a machine stands in an attempt. No host and port 0: as configured."""

    node: int
    nodes: int
    host: str = ""
    port: int = 0


class Meeting:
    """``static``: machines know their numbers. ``c10d``: they come to an endpoint, any number within the bounds, and
    come again when ranks of any of them fail.
    """

    def __init__(self, config: LaunchConfig) -> None:
        self._config = config
        self._store: Any = None
        self._round = -1
        if config.rdzv_backend == "etcd":
            raise DistError("launch: expected --rdzv-backend static or c10d, got etcd")
        if config.rdzv_backend == "c10d":
            self._store = self._connected()

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._store = None

    def _connected(self) -> TCPStore:
        endpoint = self._config.rdzv_endpoint or "127.0.0.1:0"
        host, _, port = endpoint.rpartition(":")
        host, number = (host, int(port)) if host else (endpoint, 29400)
        bound = timedelta(seconds=self._config.rdzv_timeout)
        try:  # who listens there first keeps the store
            return TCPStore(host, number, is_master=True, timeout=bound, wait_for_workers=False)
        except (DistNetworkError, OSError):
            return TCPStore(host, number, timeout=bound)

    def join(self, attempt: int) -> Place:
        """This machine's place in the attempt. ``DistError`` where too few come in time."""
        config = self._config
        if self._store is None:
            if config.node_rank >= config.max_nodes:
                raise DistError(f"launch: expected --node-rank below {config.max_nodes}, got {config.node_rank}")
            return Place(config.node_rank, config.max_nodes)
        self._round = int(self._store.add(f"{config.rdzv_id}/round", 0))
        prefix = f"{config.rdzv_id}/{self._round}"
        node = int(self._store.add(f"{prefix}/nodes", 1)) - 1
        if node == 0:
            self._store.set(f"{prefix}/host", f"{_own_address(config)} {_free_port()}")
        nodes = self._gathered(prefix)
        if node >= nodes:
            raise DistError(f"launch: {nodes} machines are at work already; expected a place, got number {node}")
        self._store.set(f"{config.rdzv_id}/machines", str(nodes))
        host, port = self._store.get(f"{prefix}/host").decode().split()
        return Place(node, nodes, host, int(port))

    def _gathered(self, prefix: str) -> int:
        """How many machines the attempt has, once they are enough and the last call is over."""
        config, end = self._config, time.monotonic() + self._config.rdzv_timeout
        enough_since: float | None = None
        while True:
            self._look_for_ends()
            if self._store.check([f"{prefix}/closed"]):
                return int(self._store.get(f"{prefix}/closed"))
            count = int(self._store.add(f"{prefix}/nodes", 0))
            now = time.monotonic()
            if count >= config.min_nodes and enough_since is None:
                enough_since = now
            waited = enough_since is not None and now - enough_since >= LAST_CALL
            if count >= config.max_nodes or waited:
                told = str(min(count, config.max_nodes))
                return int(self._store.compare_set(f"{prefix}/closed", "", told))
            if now > end:
                raise DistError(f"launch: {count} of {config.min_nodes} machines came within {config.rdzv_timeout:g} s")
            time.sleep(0.05)

    def failed(self) -> None:
        """Ranks here have failed: the others' attempts are over too."""
        if self._store is not None:
            name = f"{self._config.rdzv_id}/round"
            self._store.compare_set(name, str(self._round), str(self._round + 1))

    def others_failed(self) -> bool:
        """Whether ranks of another machine have."""
        if self._store is None:
            return False
        self._look_for_ends()
        return int(self._store.add(f"{self._config.rdzv_id}/round", 0)) != self._round

    def give_up(self, why: str) -> None:
        """Ranks here are not started again: no other machine need wait for this one."""
        if self._store is None:
            return
        name = f"{self._config.rdzv_id}/ended"
        self._store.set(name, f"{socket.gethostname()} has given up: {why}")
        others, end = int(self._store.get(f"{self._config.rdzv_id}/machines")) - 1, time.monotonic() + LAST_CALL
        while self._store._server is not None and time.monotonic() < end:  # the store ends with its keeper
            if int(self._store.add(f"{name}/heard", 0)) >= others:
                return
            time.sleep(0.02)

    def _look_for_ends(self) -> None:
        name = f"{self._config.rdzv_id}/ended"
        if self._store.check([name]):
            why = self._store.get(name).decode()
            self._store.add(f"{name}/heard", 1)
            raise DistError(f"launch: {why}")

    def done(self) -> None:
        """This machine's ranks have ended well; the keeper of the store stays until all have."""
        if self._store is None:
            return
        prefix = f"{self._config.rdzv_id}/{self._round}"
        count = int(self._store.add(f"{prefix}/done", 1))
        nodes = int(self._store.get(f"{prefix}/closed"))
        end = time.monotonic() + self._config.rdzv_timeout
        while self._store._server is not None and count < nodes and time.monotonic() < end:
            time.sleep(0.05)
            count = int(self._store.add(f"{prefix}/done", 0))


def _own_address(config: LaunchConfig) -> str:
    host = config.rdzv_endpoint.rpartition(":")[0]
    if host in ("", "localhost", "127.0.0.1"):
        return host or "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # no datagram is sent
        probe.connect((host, 9))
        return str(probe.getsockname()[0])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
