"""A bar that says how far a training run has come: by rich or tqdm, whichever is installed, or in plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from importlib.util import find_spec
from typing import Any, TextIO, TypeVar

__all__ = ["Progress", "track"]

Item = TypeVar("Item")


class Progress:
    """Counts what is done, with speed, time left and the values last shown.

    On a terminal it is a bar drawn by rich or tqdm (``pip install "tesserack[progress]"``); where neither is installed,
    or output goes to a file, it is a line per tenth of the work. Values may be tensors: they are read only when shown.

    Args:
        total: how much there is to do; None if nobody knows.
        title: what is being done.
        unit: what is counted, for the speed.
        style: ``"rich"``, ``"tqdm"`` or ``"plain"``; chosen by what is there unless given.
        file: where to write; standard error unless given.

    >>> with Progress(4, "training", style="plain", file=sys.stdout) as bar:
    ...     for step in range(4):
    ...         bar.advance(loss=1 / (step + 1))  # doctest: +ELLIPSIS
    training 1/4...
    """

    def __init__(
        self,
        total: int | None = None,
        title: str = "training",
        unit: str = "samples",
        style: str | None = None,
        file: TextIO | None = None,
    ) -> None:
        self.total, self.title, self.unit = total, title, unit
        self.file = sys.stderr if file is None else file
        self.done = 0
        self.values: dict[str, Any] = {}
        self._began = time.perf_counter()
        self._bar = _STYLES[_style(style, self.file)](self)

    def __enter__(self) -> Progress:
        self._began = time.perf_counter()
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def advance(self, count: int = 1, **values: Any) -> None:
        """So much more is done; numbers or tensors of one element to show beside the bar."""
        self.done += count
        self.values.update(values)
        self._bar.moved(count)

    def write(self, text: str) -> None:
        """A line that stays, above the bar."""
        self._bar.write(text)

    @property
    def speed(self) -> float:
        """Units per second so far."""
        return self.done / max(time.perf_counter() - self._began, 1e-9)

    def shown(self) -> str:
        """The values, as text: reads those that are tensors."""
        return "  ".join(f"{name} {float(value):.4g}" for name, value in self.values.items())


def track(items: Iterable[Item], title: str = "training", **options: Any) -> Iterator[Item]:
    """The items one by one, such as the batches of a ``DataLoader``, under a :class:`Progress` that counts them.

    >>> [x for x in track([1, 2], "counting", style="plain", file=sys.stdout)]  # doctest: +ELLIPSIS
    counting 1/2...
    """
    total = len(items) if isinstance(items, Sized) else None
    with Progress(total, title, **{"unit": "items", **options}) as bar:
        for item in items:
            yield item
            bar.advance()


def _style(asked: str | None, file: TextIO) -> str:
    if asked is not None and asked not in _STYLES:
        raise ValueError(f"Progress: expected style among {', '.join(map(repr, _STYLES))}, got {asked!r}")
    if asked in ("rich", "tqdm") and find_spec(asked) is None:
        raise ModuleNotFoundError(f"Progress: {asked} is not installed; try pip install {asked}")
    if asked:
        return asked
    terminal = hasattr(file, "isatty") and file.isatty()
    return next((name for name in ("rich", "tqdm") if terminal and find_spec(name)), "plain")


class _Plain:
    """A line now and then."""

    def __init__(self, owner: Progress) -> None:
        self.owner = owner
        self.told = -1

    def start(self) -> None:
        """Nothing to draw."""

    def moved(self, count: int) -> None:
        """Tells each tenth; without a total each tenfold."""
        done, total = self.owner.done, self.owner.total
        step = 10 * done // total if total else len(str(done))
        if step != self.told:
            self.told = step
            self.line()

    def line(self) -> None:
        """Where we are."""
        o = self.owner
        left = f", {(o.total - o.done) / o.speed:.0f} s left" if o.total and o.done < o.total else ""
        of = f"/{o.total}" if o.total else ""
        values = f"  {o.shown()}" if o.values else ""
        print(f"{o.title} {o.done}{of}{values}  ({o.speed:,.0f} {o.unit}/s{left})", file=o.file, flush=True)

    def write(self, text: str) -> None:
        """A line among others."""
        print(text, file=self.owner.file, flush=True)

    def stop(self) -> None:
        """The end is told, if it is not yet."""
        if self.owner.done and self.owner.total != self.owner.done:
            self.line()


class _Rich:
    """A bar of rich's."""

    def __init__(self, owner: Progress) -> None:
        from rich import progress
        from rich.console import Console

        self.owner = owner
        columns: list[Any] = [progress.TextColumn("{task.description}"), progress.BarColumn()]
        columns += [progress.TaskProgressColumn(), progress.TextColumn("{task.fields[values]}")]
        self.bar = progress.Progress(*columns, progress.TimeRemainingColumn(), console=Console(file=owner.file))
        self.task = self.bar.add_task(owner.title, total=owner.total, values="")
        self.drawn = 0.0

    def start(self) -> None:
        """Begins to draw."""
        self.bar.start()

    def moved(self, count: int) -> None:
        """Values are read a few times a second: reading waits for the device."""
        now = time.perf_counter()
        last = self.owner.done == self.owner.total
        if now - self.drawn > 0.2 or last:
            self.drawn = now
            values = f"{self.owner.shown()}  {self.owner.speed:,.0f} {self.owner.unit}/s"
            self.bar.update(self.task, completed=self.owner.done, values=values)

    def write(self, text: str) -> None:
        """Above the bar."""
        self.bar.console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        """Leaves the bar as it is."""
        self.bar.update(self.task, completed=self.owner.done)
        self.bar.stop()


class _Tqdm:
    """A bar of tqdm's."""

    def __init__(self, owner: Progress) -> None:
        from tqdm import tqdm

        self.owner, self.make = owner, tqdm
        self.bar: Any = None
        self.drawn = 0.0

    def start(self) -> None:
        """Begins to draw."""
        o = self.owner
        self.bar = self.make(total=o.total, desc=o.title, unit=f" {o.unit}", file=o.file, dynamic_ncols=True)

    def moved(self, count: int) -> None:
        """As for rich."""
        now = time.perf_counter()
        if now - self.drawn > 0.2 or self.owner.done == self.owner.total:
            self.drawn = now
            self.bar.set_postfix_str(self.owner.shown(), refresh=False)
        self.bar.update(count)

    def write(self, text: str) -> None:
        """Above the bar."""
        self.make.write(text, file=self.owner.file)

    def stop(self) -> None:
        """Leaves the bar as it is."""
        self.bar.close()


_STYLES: dict[str, Any] = {"rich": _Rich, "tqdm": _Tqdm, "plain": _Plain}
