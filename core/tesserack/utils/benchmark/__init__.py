"""Timing statements: :class:`Timer` measures, :class:`Compare` prints measurements side by side."""

from tesserack.utils.benchmark.compare import Compare
from tesserack.utils.benchmark.measurement import Language, Measurement, TaskSpec
from tesserack.utils.benchmark.timer import Timer, timer

__all__ = ["Compare", "Language", "Measurement", "TaskSpec", "Timer", "timer"]
