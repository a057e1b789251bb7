"""``torch._C._profiler``: where the program is."""

from __future__ import annotations

import sys
import traceback
from typing import Any

from tesserack.utils.profiler import record_function

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


class _ExperimentalConfig:
    """Options of PyTorch's tracer, kept as they are given: none changes what is recorded."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.options = options

    def __bool__(self) -> bool:
        return bool(self.options)


class _RecordFunctionFast(record_function):
    """A named range; the values that may be given with it are not noted."""

    def __init__(self, name: str, input_values: Any = None, keyword_values: dict[str, Any] | None = None) -> None:
        super().__init__(name)
