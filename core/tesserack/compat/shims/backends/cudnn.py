"""``torch.backends.cudnn``: NVIDIA's library is not used; the switches can be set and change nothing."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

from tesserack.compat.shims.backends._flags import flags_of

__all__ = ["flags", "is_acceptable", "is_available", "set_flags", "version"]

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"
conv = SimpleNamespace(fp32_precision="none")
rnn = SimpleNamespace(fp32_precision="none")


def is_available() -> bool:
    """Always False."""
    return False


def version() -> int | None:
    """None: there is no such library."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """Always False."""
    return False


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
    _fp32_precision: str = "none",
) -> tuple[bool, bool, int, bool, bool]:
    """Set the switches that are given; returns how all were."""
    before = (enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    given = {
        "enabled": _enabled,
        "benchmark": _benchmark,
        "benchmark_limit": _benchmark_limit,
        "deterministic": _deterministic,
        "allow_tf32": _allow_tf32,
    }
    globals().update({name: value for name, value in given.items() if value is not None})
    return before


def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> contextlib.AbstractContextManager[None]:
    """A context with other switches."""
    return flags_of(
        __name__,
        enabled=enabled,
        benchmark=benchmark,
        benchmark_limit=benchmark_limit,
        deterministic=deterministic,
        allow_tf32=allow_tf32,
    )
