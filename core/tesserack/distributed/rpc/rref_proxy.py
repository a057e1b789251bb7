"""Methods of values in other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack.distributed.rpc._agent import called
from tesserack.distributed.rpc.api import rpc_sync
from tesserack.distributed.rpc.constants import UNSET_RPC_TIMEOUT

__all__ = ["RRefProxy"]


class RRefProxy:
    """What a reference's ``rpc_sync()``, ``rpc_async()`` and ``remote()`` give: any name is a method of the value."""

    def __init__(self, rref: Any, rpc_api: Callable[..., Any], timeout: float = UNSET_RPC_TIMEOUT) -> None:
        self.rref, self.rpc_api, self.rpc_timeout = rref, rpc_api, timeout

    def __getattr__(self, func_name: str) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:
            if self.rpc_api is not rpc_sync:
                self.rref._check_has(func_name, self.rpc_timeout)  # of what is not waited for nobody would hear
            given = (self.rref, func_name, args, kwargs)
            return self.rpc_api(self.rref.owner(), _method, args=given, timeout=self.rpc_timeout)

        return method


def _method(rref: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Call a method of a value of ours."""
    return called(getattr(rref.local_value(), name), args, kwargs)
