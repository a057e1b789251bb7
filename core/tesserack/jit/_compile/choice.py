"""Whether the graph of a small program is worth it: both ways are measured, as running it again changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

__all__ = ["why_plain"]

_WARM, _TURNS = 4, 7  # calls until there is a plan; by turns, of which the quickest counts
_SECONDS = 20e-6  # that a turn takes
_LONG = 2e-4  # seconds of a call beside which what a graph costs besides is nothing, and measuring would be much


def why_plain(plain: Callable[..., Any], graph: Callable[..., Any], args: Any, kwargs: Any) -> str:
    """Why calls like this one are Python's, as was measured; empty where the graph is quicker."""
    once = _seconds(plain, args, kwargs, 1)
    if once > _LONG:
        return ""
    for _ in range(_WARM):
        graph(*args, **kwargs)
    calls = max(1, min(50, int(_SECONDS / max(1e-9, once))))
    best = [math.inf, math.inf]
    for _ in range(_TURNS):
        for way, call in enumerate((plain, graph)):
            best[way] = min(best[way], _seconds(call, args, kwargs, calls))
    if best[1] < best[0]:
        return ""
    return f"Python takes {best[0] * 1e6:.2f} us for a call, and a graph {best[1] * 1e6:.2f} us"


def _seconds(call: Callable[..., Any], args: Any, kwargs: Any, calls: int) -> float:
    begin = perf_counter()
    for _ in range(calls):
        call(*args, **kwargs)
    return (perf_counter() - begin) / calls
