"""Collectives that gradients pass through, and modules in other processes."""

from typing import Any

from tesserack.distributed.nn import functional
from tesserack.distributed.nn.functional import (
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "functional",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]


def __getattr__(name: str) -> Any:
    if name == "RemoteModule":  # brings calls into other processes, which few need
        from tesserack.distributed.nn.api.remote_module import RemoteModule

        return RemoteModule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
