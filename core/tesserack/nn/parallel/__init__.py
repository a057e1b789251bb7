"""Modules over several devices of one process, and over several processes."""

from typing import Any

from tesserack.nn.parallel import comm
from tesserack.nn.parallel.data_parallel import DataParallel, data_parallel
from tesserack.nn.parallel.parallel_apply import parallel_apply
from tesserack.nn.parallel.replicate import replicate
from tesserack.nn.parallel.scatter_gather import gather, scatter

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "comm",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]


def __getattr__(name: str) -> Any:
    # What only programs of several processes need is imported with their first name of it.
    if name == "DistributedDataParallel":
        from tesserack.nn.parallel.distributed import DistributedDataParallel

        return DistributedDataParallel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
