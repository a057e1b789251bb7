"""Runs in Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tesserack.utils.tracking._tracker import Tracker, flat

__all__ = ["WandbTracker"]


class WandbTracker(Tracker):
    """A run that stays on this machine, to be sent by ``wandb sync``, unless ``WANDB_MODE`` says otherwise."""

    def __init__(self, folder: Path, project: str, name: str, options: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ModuleNotFoundError("track: Weights & Biases is not installed: pip install wandb") from error
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(project=project, name=name, dir=str(folder), config=flat(options), mode=mode)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def file(self, path: Path) -> None:
        self._run.save(str(path), base_path=str(path.parent), policy="now")

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=1 if failed else 0)
