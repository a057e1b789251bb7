"""``torch.cuda.memory``."""

from __future__ import annotations

from typing import Any

from tesserack.compat.shims._card import Card
from tesserack.compat.shims._card_functions import functions as _functions

_NAMES = (
    *("empty_cache", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"),
    *(
        "memory_stats",
        "memory_summary",
        "mem_get_info",
        "reset_peak_memory_stats",
        "memory_cached",
        "max_memory_cached",
    ),
    *("reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats"),
)
globals().update({name: function for name, function in _functions("cuda").items() if name in _NAMES})

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    """Records of allocations are the cuda backend's."""
    if name in ("_record_memory_history", "_snapshot", "_dump_snapshot", "memory_snapshot"):
        found = getattr(getattr(Card("cuda")._module(), "memory", None), name, None)
        if found is not None:
            return found
        raise AttributeError(f"torch.cuda.memory.{name} is of the cuda backend; pip install tesserack-cuda")
    raise AttributeError(f"module 'torch.cuda.memory' has no attribute {name!r}")
