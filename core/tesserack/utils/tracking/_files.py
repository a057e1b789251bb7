"""Runs as JSON lines, and as TensorBoard's event files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tesserack.utils.tensorboard import SummaryWriter
from tesserack.utils.tracking._tracker import Tracker, flat

__all__ = ["JsonTracker", "TensorBoardTracker"]


class JsonTracker(Tracker):
    """``log.jsonl``: a line of options, a line a step, a line at the end, each there as soon as it is written."""

    def __init__(self, folder: Path, project: str, name: str, options: Mapping[str, Any]) -> None:
        self._folder = folder
        self._file = open(folder / "log.jsonl", "a", encoding="utf-8", buffering=1)  # noqa: SIM115 # closed in close
        self._write({"project": project, "name": name, "options": flat(options)})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._write({"step": step, **values})

    def file(self, path: Path) -> None:
        target = self._folder / path.name
        if not (target.exists() and target.samefile(path)):
            shutil.copy(path, target)

    def close(self, failed: bool) -> None:
        self._write({"ended": "failed" if failed else "done"})
        self._file.close()


class TensorBoardTracker(Tracker):
    """An event file; options as a text, files beside it."""

    def __init__(self, folder: Path, project: str, name: str, options: Mapping[str, Any]) -> None:
        self._folder = folder
        self._writer = SummaryWriter(str(folder))
        rows = "".join(f"| {key} | {value} |\n" for key, value in flat(options).items())
        self._writer.add_text("options", f"| option | value |\n|---|---|\n{rows}")

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def file(self, path: Path) -> None:
        target = self._folder / path.name
        if not (target.exists() and target.samefile(path)):
            shutil.copy(path, target)

    def close(self, failed: bool) -> None:
        self._writer.close()
