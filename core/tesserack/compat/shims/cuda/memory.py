"""``torch.cuda.memory``."""

from __future__ import annotations

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
