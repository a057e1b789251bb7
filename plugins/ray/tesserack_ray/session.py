"""What a train loop may ask and tell, within a worker."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tesserack_ray.checkpoint import Checkpoint

__all__ = ["Report", "Session", "StoppedError", "TrainContext", "get_checkpoint", "get_context", "report"]


class StoppedError(BaseException):
    """Ends a train loop whose attempt is over; nothing for its ``except Exception``."""


@dataclass(frozen=True)
class TrainContext:
    """Where a worker stands among the others."""

    world_rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    experiment_name: str = ""
    storage: str = ""
    attempt: int = 0

    def get_world_rank(self) -> int:
        """This worker's rank."""
        return self.world_rank

    def get_world_size(self) -> int:
        """How many workers there are in this attempt."""
        return self.world_size

    def get_local_rank(self) -> int:
        """This worker's number among those of its node."""
        return self.local_rank

    def get_local_world_size(self) -> int:
        """How many workers its node has."""
        return self.local_world_size

    def get_node_rank(self) -> int:
        """The node's number among those with workers."""
        return self.node_rank

    def get_experiment_name(self) -> str:
        """The training's name."""
        return self.experiment_name

    def get_storage(self) -> str:
        """The training's folder."""
        return self.storage


class Report(NamedTuple):
    """What one rank reports: the number of the report, metrics, and the checkpoint's folder if it gave files."""

    number: int
    metrics: dict[str, Any]
    checkpoint: str | None


class Session:
    """The worker's end: a report waits until all ranks have made it and the driver has taken them."""

    def __init__(self, context: TrainContext, checkpoint: Checkpoint | None, number: int) -> None:
        self.context, self.checkpoint, self.number = context, checkpoint, number
        self._changed = threading.Condition()
        self._waiting: Report | None = None
        self._stopped = False

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None, name: str | None) -> None:
        """Keep the files, and wait for the others."""
        folder = None
        if checkpoint is not None:
            folder = name or f"checkpoint_{self.number:06d}"
            target = Path(self.context.storage, folder)
            if Path(checkpoint.path).resolve() != target.resolve():
                shutil.copytree(checkpoint.path, target, dirs_exist_ok=True)
        with self._changed:
            self._waiting = Report(self.number, metrics, folder)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting is None or self._stopped)
            if self._stopped:
                raise StoppedError
            self.number += 1
        if folder is not None:
            self.checkpoint = Checkpoint(Path(self.context.storage, folder))

    def pending(self, timeout: float) -> Report | None:
        """The report that waits, if one comes within the time."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None, timeout)
            return self._waiting

    def taken(self) -> None:
        """All ranks have made the report: the loop may go on."""
        with self._changed:
            self._waiting = None
            self._changed.notify_all()

    def stop(self) -> None:
        """The attempt is over: the loop ends at its report."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


_session: Session | None = None


def begin(session: Session | None) -> None:
    """The session of this process."""
    global _session
    _session = session


def _current(what: str) -> Session:
    if _session is None:
        raise RuntimeError(f"{what}: expected to be called in the train loop of a TesserackTrainer")
    return _session


def report(
    metrics: dict[str, Any], checkpoint: Checkpoint | None = None, checkpoint_dir_name: str | None = None
) -> None:
    """Tell metrics, and keep a checkpoint: every rank calls this, equally often, and goes on when all have.

    Files of different ranks lie side by side in one folder, so those of each need names of their own. Metrics of rank
    0 are kept. The checkpoint counts once all ranks have reported.
    """
    _current("report").report(dict(metrics), checkpoint, checkpoint_dir_name)


def get_checkpoint() -> Checkpoint | None:
    """The last checkpoint, from which the loop goes on; None at a first start."""
    return _current("get_checkpoint").checkpoint


def get_context() -> TrainContext:
    """Where this worker stands; outside of a train loop, a world of one."""
    return TrainContext() if _session is None else _session.context
