"""Runs in MLflow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tesserack.utils.tracking._tracker import Tracker, flat

__all__ = ["MlflowTracker"]


class MlflowTracker(Tracker):
    """A run of an experiment named after the project, in the store that ``MLFLOW_TRACKING_URI`` names, else in a file
    of SQLite's beside the project's runs.
    """

    def __init__(self, folder: Path, project: str, name: str, options: Mapping[str, Any]) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise ModuleNotFoundError("track: MLflow is not installed: pip install mlflow") from error
        given = os.environ.get("MLFLOW_TRACKING_URI")
        store = folder.parent.parent.resolve()
        self._client = MlflowClient(given or f"sqlite:///{store / 'mlflow.db'}")
        found = self._client.get_experiment_by_name(project)
        files = None if given else (store / project / "mlflow").as_uri()
        number = found.experiment_id if found else self._client.create_experiment(project, artifact_location=files)
        self._run = self._client.create_run(number, run_name=name).info.run_id
        for key, value in flat(options).items():
            self._client.log_param(self._run, key, value)

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def file(self, path: Path) -> None:
        self._client.log_artifact(self._run, str(path))

    def close(self, failed: bool) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")
