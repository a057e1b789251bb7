"""What a place for results has to do."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Tracker"]


class Tracker(abc.ABC):
    """One place. Made as ``factory(folder=Path, project=str, name=str, options=dict)``; plugins bring more by the hook
    ``tesserack_trackers``.
    """

    @abc.abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Numbers of a step."""

    @abc.abstractmethod
    def file(self, path: Path) -> None:
        """A file that the run made, to be kept with it."""

    @abc.abstractmethod
    def close(self, failed: bool) -> None:
        """The run has ended."""


def flat(options: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Options of options as one level, joined by dots; what is no number, text or truth value as text.

    >>> flat({"lr": 0.1, "model": {"width": 8, "act": None}})
    {'lr': 0.1, 'model.width': 8, 'model.act': 'None'}
    """
    found: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{before}{key}."))
        else:
            found[f"{before}{key}"] = value if isinstance(value, (bool, int, float, str)) else str(value)
    return found
