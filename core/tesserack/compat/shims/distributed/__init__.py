"""``torch.distributed``: this package's, and what PyTorch has beside it of its own build."""

from __future__ import annotations

import os
from typing import Any

from tesserack.distributed import *  # noqa: F403
from tesserack.distributed import __all__ as _shared

__all__ = [
    *_shared,
    "is_gloo_available",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
]


def is_nccl_available() -> bool:
    """Whether a communicator of that name is known: ranks of one machine by shared memory."""
    return True


def is_gloo_available() -> bool:
    """Whether a communicator of that name is known: ranks of one machine by shared memory."""
    return True


def is_mpi_available() -> bool:
    """Whether a plugin has brought one."""
    from tesserack.distributed import is_backend_available

    return is_backend_available("mpi")


def is_ucc_available() -> bool:
    """Always False."""
    return False


def is_xccl_available() -> bool:
    """Always False."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether ``tesserack launch`` started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def __getattr__(name: str) -> Any:
    import tesserack.distributed

    return getattr(tesserack.distributed, name)
