"""What is kept of a training: its checkpoints and metrics, in its folder."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tesserack_ray.checkpoint import Checkpoint
from tesserack_ray.config import CheckpointConfig
from tesserack_ray.session import Report

__all__ = ["Kept", "Result", "TrainingFailedError"]

_FILE = "checkpoints.json"


class TrainingFailedError(RuntimeError):
    """Attempts failed, more often than they may; the last one's error is the ``__cause__``."""


@dataclass
class Result:
    """How a training ended: rank 0's last metrics and all before them, the last checkpoint and those that were kept."""

    metrics: dict[str, Any]
    checkpoint: Checkpoint | None
    path: str
    error: BaseException | None = None
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = field(default_factory=list)
    metrics_history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def metrics_dataframe(self) -> Any:
        """The metrics of all reports, as pandas shows them."""
        import pandas

        return pandas.DataFrame(self.metrics_history)


class Kept:
    """The checkpoints that every rank has reported, the metrics with each, and how many reports there were by then."""

    def __init__(self, folder: Path, config: CheckpointConfig) -> None:
        self.folder, self._config = folder, config
        self.entries: list[dict[str, Any]] = []
        self.history: list[dict[str, Any]] = []
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            told = json.loads((folder / _FILE).read_text())
            self.entries = [entry for entry in told["checkpoints"] if (folder / entry["folder"]).is_dir()]
            self.history = told["history"][: self.reports]

    @property
    def last(self) -> str | None:
        """The folder of the last checkpoint."""
        return str(self.folder / self.entries[-1]["folder"]) if self.entries else None

    @property
    def reports(self) -> int:
        """How many reports there were up to the last checkpoint: the next attempt counts on from there."""
        return int(self.entries[-1]["reports"]) if self.entries else 0

    def rewind(self) -> None:
        """A new attempt begins: what was reported after the last checkpoint will be again, and files of checkpoints
        that some ranks did not finish are of no use."""
        del self.history[self.reports :]
        known = {entry["folder"] for entry in self.entries}
        for folder in self.folder.glob("checkpoint_*"):
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)

    def add(self, reports: list[Report]) -> None:
        """One report of all ranks. ``RuntimeError`` where they gave files into different folders."""
        numbers, folders = {r.number for r in reports}, {r.checkpoint for r in reports if r.checkpoint is not None}
        if len(numbers) > 1 or len(folders) > 1:
            raise RuntimeError(
                "report: expected every rank to report equally often and into one folder, got reports "
                f"{sorted(numbers)} into {sorted(folders)}"
            )
        metrics = reports[0].metrics
        self.history.append(metrics)
        if folders:
            self.entries.append({"folder": folders.pop(), "metrics": metrics, "reports": len(self.history)})
            self._write()
            self._forget()

    def _write(self) -> None:
        told = json.dumps({"checkpoints": self.entries, "history": self.history}, default=str)
        partial = self.folder / (_FILE + ".partial")
        partial.write_text(told)
        partial.replace(self.folder / _FILE)

    def _score(self, entry: dict[str, Any]) -> tuple[float, int]:
        name = self._config.checkpoint_score_attribute
        if name is None:
            return (0.0, entry["reports"])
        if name not in entry["metrics"]:
            raise KeyError(f"CheckpointConfig: expected {name!r} among the metrics, got {sorted(entry['metrics'])}")
        value = float(entry["metrics"][name])
        return (value if self._config.checkpoint_score_order == "max" else -value, entry["reports"])

    def _forget(self) -> None:
        """All but the best, and the last, from which training would go on."""
        if self._config.num_to_keep is None:
            return
        best = sorted(self.entries, key=self._score, reverse=True)[: self._config.num_to_keep]
        gone = [entry for entry in self.entries[:-1] if entry not in best]
        self.entries = [entry for entry in self.entries if entry not in gone]
        self._write()
        for entry in gone:
            shutil.rmtree(self.folder / entry["folder"], ignore_errors=True)

    def result(self, error: BaseException | None = None) -> Result:
        """What has come of the training."""
        best = [(Checkpoint(self.folder / entry["folder"]), entry["metrics"]) for entry in self.entries]
        last = None if self.last is None else Checkpoint(self.last)
        metrics = self.history[-1] if self.history else {}
        return Result(metrics, last, str(self.folder), error, best, list(self.history))
