"""What :func:`~tesserack.distributed.rpc.init_rpc` is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import tesserack as ts
from tesserack.distributed.rpc import constants

__all__ = ["RpcBackendOptions", "TensorPipeRpcBackendOptions"]


class RpcBackendOptions:
    """How long a call may take, in seconds, and where workers meet (as of ``init_process_group``)."""

    def __init__(
        self,
        rpc_timeout: float | timedelta = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
    ) -> None:
        self.rpc_timeout = rpc_timeout
        self.init_method = init_method

    @property
    def rpc_timeout(self) -> float:
        """Seconds that a call may take by default; 0 for any number."""
        return self._rpc_timeout

    @rpc_timeout.setter
    def rpc_timeout(self, seconds: float | timedelta) -> None:
        self._rpc_timeout = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """Those, and where tensors of other devices than the cpu go.

    Each call has a thread, so that ``num_worker_threads`` bounds nothing. ``device_maps`` says for each worker, by
    name, which of its devices one of ours becomes there; tensors of devices without an entry are not sent.

    >>> options = TensorPipeRpcBackendOptions(rpc_timeout=20, device_maps={"worker1": {"cpu": "cpu"}})
    >>> options.rpc_timeout, options.device_maps
    (20.0, {'worker1': {device(type='cpu'): device(type='cpu')}})
    """

    def __init__(
        self,
        *,
        num_worker_threads: int = constants.DEFAULT_NUM_WORKER_THREADS,
        rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
        device_maps: Mapping[str, Mapping[Any, Any]] | None = None,
        devices: Sequence[Any] | None = None,
        _transports: Sequence[str] | None = None,
        _channels: Sequence[str] | None = None,
    ) -> None:
        super().__init__(rpc_timeout, init_method)
        if num_worker_threads < 1:
            raise ValueError(
                f"TensorPipeRpcBackendOptions: expected at least 1 worker thread, got {num_worker_threads}"
            )
        self.num_worker_threads = num_worker_threads
        self.device_maps: dict[str, dict[ts.device, ts.device]] = {}
        self.devices = [ts.device(device) for device in devices or ()]
        for worker, devices_there in (device_maps or {}).items():
            self.set_device_map(worker, devices_there)

    def set_device_map(self, to: str, device_map: Mapping[Any, Any]) -> None:
        """Which device of the worker ``to`` each of ours becomes. ``ValueError`` if two become one."""
        made = {ts.device(ours): ts.device(theirs) for ours, theirs in device_map.items()}
        known = {**self.device_maps.get(to, {}), **made}
        if len({*known.values()}) != len(known):
            raise ValueError(f"set_device_map: expected one device of {to!r} for each of ours, got {known}")
        self.device_maps[to] = known

    def set_devices(self, devices: Sequence[Any]) -> None:
        """Our devices that tensors come to."""
        self.devices = [ts.device(device) for device in devices]
