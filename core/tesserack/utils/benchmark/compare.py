"""Measurements side by side."""

from __future__ import annotations

from collections.abc import Iterable

from tesserack.utils.benchmark.measurement import Measurement, select_unit

__all__ = ["Compare"]


class Compare:
    """A table of measurements: a row for each sub-label and number of threads, a column for each description."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results = [*results]
        self._digits = 1

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements."""
        self._results += results

    def trim_significant_figures(self) -> None:
        """Print without digits after the point."""
        self._digits = 0

    def colorize(self, rowwise: bool = False) -> None:
        """Kept for programs that call it: the table has no colours."""

    def highlight_warnings(self) -> None:
        """Kept for programs that call it."""

    def print(self) -> None:
        """Print the table."""
        print(str(self))

    def __str__(self) -> str:
        labels = [*dict.fromkeys(m.title for m in self._results)]
        return "\n\n".join(self._table(label, [m for m in self._results if m.title == label]) for label in labels)

    def _table(self, label: str, found: list[Measurement]) -> str:
        columns = [*dict.fromkeys(m.task_spec.description or m.stmt for m in found)]
        unit, scale = select_unit(min(m.median for m in found))
        lines = [["", *columns]]
        for threads in sorted({m.num_threads for m in found}):
            lines.append([f"{threads} threads:", *[""] * len(columns)])
            same = [m for m in found if m.num_threads == threads]
            for row in dict.fromkeys(m.task_spec.sub_label or m.stmt for m in same):
                cells = {
                    m.task_spec.description or m.stmt: f"{m.median / scale:.{self._digits}f}"
                    for m in same
                    if (m.task_spec.sub_label or m.stmt) == row
                }
                lines.append([f"  {row}", *(cells.get(column, "") for column in columns)])
        widths = [max(len(line[k]) for line in lines) for k in range(len(columns) + 1)]
        rows = [
            "  |  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
            for line in lines
        ]
        return "\n".join([f"[{label}]", *rows, f"Times are in {unit}."])
