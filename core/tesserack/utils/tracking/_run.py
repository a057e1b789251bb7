"""A run and the places that it is written to."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tesserack import plugins
from tesserack.utils.tracking._tracker import Tracker

__all__ = ["Run", "track", "trackers"]

# Name: where its class is; the package that it is for is imported when it is used.
_OURS = {
    "json": "_files:JsonTracker",
    "tensorboard": "_files:TensorBoardTracker",
    "mlflow": "_mlflow:MlflowTracker",
    "wandb": "_wandb:WandbTracker",
}


def trackers() -> list[str]:
    """Names that :func:`track` takes: ours, and those of installed plugins."""
    return sorted({*_OURS, *_of_plugins()})


def _of_plugins() -> dict[str, Callable[..., Tracker]]:
    plugins.load()
    return plugins.trackers()


def _factory(name: str) -> Callable[..., Tracker]:
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        factory: Callable[..., Tracker] = getattr(importlib.import_module(f"{__package__}.{module}"), attribute)
        return factory
    found = _of_plugins()
    if name not in found:
        raise ValueError(f"track: there is no tracker {name!r}; there are {', '.join(sorted({*_OURS, *found}))}")
    return found[name]


class Run:
    """A run, written to every place it was begun with; see :func:`track`."""

    def __init__(self, places: list[Tracker], folder: Path) -> None:
        self.folder = folder
        self._places, self._step, self._open = places, 0, True

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Write numbers of a step; without ``step``, of the next one.

        Args:
            values: numbers, tensors of one element, or metrics, whose ``compute`` is asked. Reading a tensor waits for
                its device.
            step: counts from whatever the program likes.

        Raises:
            TypeError: a value is no number.
            RuntimeError: the run has ended.
        """
        if not self._open:
            raise RuntimeError("log: the run has ended")
        self._step = self._step + 1 if step is None else step
        numbers = {name: _number(name, value) for name, value in values.items()}
        for place in self._places:
            place.log(numbers, self._step)

    def file(self, path: str | Path) -> None:
        """Keep a file with the run. ``FileNotFoundError`` if there is none."""
        if not Path(path).is_file():
            raise FileNotFoundError(f"file: there is no file {str(path)!r}")
        for place in self._places:
            place.file(Path(path))

    def close(self, failed: bool = False) -> None:
        """End the run; again does nothing."""
        if self._open:
            self._open = False
            for place in self._places:
                place.close(failed)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)


def track(
    *names: str,
    project: str = "tesserack",
    name: str | None = None,
    folder: str | Path = "runs",
    options: Mapping[str, Any] | None = None,
) -> Run:
    """Begin a run that is written to the places named; use it in a ``with``, whose error marks it as failed.

    Args:
        names: of :func:`trackers`: ``"json"``, ``"tensorboard"``, ``"mlflow"``, ``"wandb"`` or a plugin's. Without
            one nothing is written, so that a program need not ask.
        project: what runs are gathered under.
        name: of the run; the time by default.
        folder: where files go. MLflow and Weights & Biases stay on this machine, in there, unless their own settings
            say otherwise (``MLFLOW_TRACKING_URI``, ``WANDB_MODE``).
        options: what the run depends on, such as ``vars(args)``.

    Raises:
        ValueError: there is no tracker of a name.
        ModuleNotFoundError: its package is not installed; the message says what to install.
    """
    name = name or time.strftime("%Y-%m-%d_%H-%M-%S")
    place = Path(folder) / project / name
    if names:
        place.mkdir(parents=True, exist_ok=True)
    factories = [_factory(tracker) for tracker in names]
    begun: list[Tracker] = []
    try:
        for factory in factories:
            begun.append(factory(folder=place, project=project, name=name, options=dict(options or {})))
    except BaseException:
        for tracker in begun:
            tracker.close(True)
        raise
    return Run(begun, place)


def _number(name: str, value: Any) -> float:
    compute = getattr(value, "compute", None)
    found = compute() if callable(compute) else value
    try:
        return found if type(found) in (int, float) else float(found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"log: {name!r}: expected a number, got {type(found).__name__}") from error
