"""``torch._C._profiler``: where the program is."""

from __future__ import annotations

import sys
import traceback
from typing import Any

__all__ = ["gather_traceback", "symbolize_tracebacks"]


def gather_traceback(python: bool, script: bool, cpp: bool) -> traceback.StackSummary:
    """The frames of Python that lead here, the innermost first; others are not known."""
    walked = traceback.walk_stack(sys._getframe(1)) if python else iter(())
    return traceback.StackSummary.extract(walked, lookup_lines=False)


def symbolize_tracebacks(tracebacks: list[traceback.StackSummary]) -> list[list[dict[str, Any]]]:
    """Name, file and line of each frame."""
    return [
        [{"name": frame.name, "filename": frame.filename, "line": frame.lineno} for frame in each]
        for each in tracebacks
    ]
