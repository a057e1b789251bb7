"""``torch.distributed``: one process, which says so. What would speak to others fails when it is used."""

from __future__ import annotations

from typing import Any

__all__ = [
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
