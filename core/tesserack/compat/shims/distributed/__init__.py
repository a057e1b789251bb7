"""``torch.distributed``: one process, which says so. What would compute with others fails when it is used; stores of
keys and values are there, between processes too.
"""

from __future__ import annotations

from typing import Any

from tesserack.distributed._errors import DistError, DistNetworkError, DistStoreError, QueueEmptyError
from tesserack.distributed._file_store import FileStore
from tesserack.distributed._stores import HashStore, PrefixStore, Store
from tesserack.distributed._tcp_store import TCPStore

__all__ = [
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "HashStore",
    "PrefixStore",
    "QueueEmptyError",
    "Store",
    "TCPStore",
    "get_rank",
    "get_world_size",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
]


def is_available() -> bool:
    """Always False."""
    return False


def is_initialized() -> bool:
    """Always False."""
    return False


def is_nccl_available() -> bool:
    """Always False."""
    return False


def is_gloo_available() -> bool:
    """Always False."""
    return False


def is_mpi_available() -> bool:
    """Always False."""
    return False


def is_torchelastic_launched() -> bool:
    """Always False."""
    return False


def get_rank(group: Any = None) -> int:
    """``ValueError``, as PyTorch's without a process group."""
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


def get_world_size(group: Any = None) -> int:
    """``ValueError``, as PyTorch's without a process group."""
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
