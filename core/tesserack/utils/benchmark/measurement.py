"""What a measurement found."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Language", "Measurement", "TaskSpec", "select_unit"]


class Language(Enum):
    """What a statement is written in."""

    PYTHON = 0
    CPP = 1


def select_unit(t: float) -> tuple[str, float]:
    """The unit that a time in seconds reads well in, and its length."""
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if t < 1000 * scale:
            return unit, scale
    return "s", 1.0


@dataclass(frozen=True)
class TaskSpec:
    """What was measured."""

    stmt: str
    setup: str = "pass"
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement."""
        return self.label or self.stmt


@dataclass
class Measurement:
    """Times of several blocks of ``number_per_run`` runs, in seconds."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[str, object] | None = field(default=None)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement of each task, with all the times that several took, per run.

        >>> task = TaskSpec("x + y")
        >>> Measurement.merge([Measurement(2, [2.0], task), Measurement(1, [3.0], task)])[0].times
        [1.0, 3.0]
        """
        groups: dict[TaskSpec, list[Measurement]] = {}
        for measurement in measurements:
            groups.setdefault(measurement.task_spec, []).append(measurement)
        return [Measurement(1, [time for each in group for time in each.times], task) for task, group in groups.items()]

    @property
    def times(self) -> list[float]:
        """Seconds per run."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        """The median of the times."""
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        """The mean of the times."""
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """The distance between the quartiles; 0 for fewer than two times."""
        if len(self.times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    @property
    def title(self) -> str:
        """What was measured."""
        return self.task_spec.title

    @property
    def stmt(self) -> str:
        """The statement."""
        return self.task_spec.stmt

    @property
    def num_threads(self) -> int:
        """The number of threads."""
        return self.task_spec.num_threads

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        blocks = f"{len(self.raw_times)} measurement{'s' * (len(self.raw_times) != 1)}"
        runs = f"{blocks}, {self.number_per_run} runs per measurement"
        threads = f"{self.num_threads} thread{'s' * (self.num_threads != 1)}"
        return (
            f"<tesserack.utils.benchmark.Measurement>\n{self.title}\n"
            f"  Median: {self.median / scale:.2f} {unit}\n  IQR:    {self.iqr / scale:.2f} {unit}\n  {runs}, {threads}"
        )
