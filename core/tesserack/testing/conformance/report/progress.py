"""How far a run is, as it goes: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["Watch", "progress"]

Watch = Callable[[dict[str, Any]], None]
_SILENT = 20.0  # seconds without a line after which one says what is running


def progress(console: Console, device: str) -> contextlib.AbstractContextManager[Watch]:
    """What follows the log of a run, and tells it. Lines are written where nobody sees a bar: into a file, through a
    pipe; whatever ends the run, the last of them says how far it was."""
    return _bar(console, device) if console.is_terminal else _lines(console, device)


@contextlib.contextmanager
def _bar(console: Console, device: str) -> Iterator[Watch]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"{device}: collecting", total=None)
        count = failed = 0

        def watch(line: dict[str, Any]) -> None:
            nonlocal count, failed
            if line["event"] == "collected":
                bar.update(task, total=count + line["count"])
            elif line["event"] == "result":
                count += 1
                failed += line["outcome"] == "failed"
                trouble = f", [red]{failed} failed[/]" if failed else ""
                bar.update(task, completed=count, description=f"{device}: {line['properties']['area']}{trouble}")

        yield watch


@contextlib.contextmanager
def _lines(console: Console, device: str) -> Iterator[Watch]:
    told = _Lines(console, device)
    told.say("collecting the tests")
    yield told.watch
    told.end_area()


class _Lines:
    """A line for every area, and one whenever there was none for a while."""

    def __init__(self, console: Console, device: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.device, self.clock = console, device, clock
        self.total = self.count = 0
        self.area = ""
        self.began = self.last = clock()
        self.outcomes: Counter[str] = Counter()

    def say(self, text: str) -> None:
        self.last = self.clock()
        self.console.print(f"{self.device}: {text}", highlight=False, markup=False, soft_wrap=True)
        self.console.file.flush()  # whoever ends this process should have read it

    def watch(self, line: dict[str, Any]) -> None:
        event = line["event"]
        if event == "collected":
            self.total = self.count + line["count"]
            self.say(f"{line['count']} tests")
        elif event == "start":
            self._enter(line["properties"].get("area", ""))
        elif event == "result":
            self._enter(line["properties"]["area"])
            self.count += 1
            self.outcomes[line["outcome"]] += 1
        elif event == "waiting" and self.clock() - self.last >= _SILENT:
            self.say(f"{self.area or 'collecting'}: {self.count} of {self.total} tests done, {line['doing']}")

    def _enter(self, area: str) -> None:
        if area != self.area:
            self.end_area()
            self.area, self.began = area, self.clock()

    def end_area(self) -> None:
        if self.outcomes:
            counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(self.outcomes.items()))
            self.say(f"{self.area}: {counts}, {self.clock() - self.began:.1f} s; {self.count} of {self.total} tests")
        self.outcomes.clear()
