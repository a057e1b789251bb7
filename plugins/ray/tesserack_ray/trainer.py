"""A training: attempts of a train loop on workers, until one ends well."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from tesserack_ray.checkpoint import Checkpoint
from tesserack_ray.config import RunConfig, ScalingConfig, TesserackConfig
from tesserack_ray.group import Group
from tesserack_ray.results import Kept, Result, TrainingFailedError
from tesserack_ray.session import TrainContext

__all__ = ["TesserackTrainer"]

_LONGEST = 400  # letters of an error
_POLL = 0.05  # seconds between looks at the workers
_log = logging.getLogger(__name__)


class TesserackTrainer:
    """Runs ``train_loop_per_worker`` on every rank. The loop gets ``train_loop_config`` if it takes an argument; in it
    ``tesserack.distributed`` is ready, and :func:`tesserack_ray.report` keeps checkpoints.

    >>> trainer = TesserackTrainer(print, scaling_config=ScalingConfig(num_workers=2))
    >>> trainer.scaling_config.bundle
    {'CPU': 1.0}
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        tesserack_config: TesserackConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
    ) -> None:
        self.train_loop_per_worker = train_loop_per_worker
        self.train_loop_config = train_loop_config
        self.tesserack_config = tesserack_config or TesserackConfig()
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self.resume_from_checkpoint = resume_from_checkpoint

    def _arguments(self) -> tuple[Any, ...]:
        if self.train_loop_config is not None:
            return (self.train_loop_config,)
        takes = inspect.signature(self.train_loop_per_worker).parameters.values()
        needed = [p for p in takes if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return ({},) if needed else ()

    def fit(self) -> Result:
        """Until the loop has ended on all ranks. ``TrainingFailedError`` when it has failed more often than it may."""
        if not ray.is_initialized():
            ray.init()
        name = self.run_config.name or f"TesserackTrainer_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
        place = Path(self.run_config.storage_path or Path.home() / "ray_results").expanduser().resolve() / name
        kept = Kept(place, self.run_config.checkpoint_config)
        most, failures = self.run_config.failure_config.max_failures, 0
        while True:
            kept.rewind()
            try:
                self._attempt(kept, TrainContext(experiment_name=name, storage=str(place), attempt=failures))
                return kept.result()
            except Exception as error:
                failures += 1
                if 0 <= most < failures:
                    told = f"fit: {name} failed {failures} time{'s' * (failures > 1)}, the last with {_short(error)}"
                    raise TrainingFailedError(told) from error
                _log.warning("%s: %s; starting again from %s", name, _short(error), kept.last or "the beginning")

    def _attempt(self, kept: Kept, context: TrainContext) -> None:
        group = Group(self.scaling_config, self.tesserack_config)
        try:
            given = self.resume_from_checkpoint
            last = kept.last or (None if given is None else given.path)
            group.run(self.train_loop_per_worker, self._arguments(), context, last, kept.reports)
            while not group.ended(_POLL):
                if (reports := group.reports(_POLL)) is not None:
                    kept.add(reports)
                    group.go_on()
        finally:
            group.end()


def _short(error: BaseException) -> str:
    """The last line of what went wrong, as far as it fits; of Ray's errors the loop's own."""
    cause = getattr(error, "cause", None) or error
    last = (str(cause).strip().splitlines() or [""])[-1]
    return f"{type(cause).__name__}: {last if len(last) <= _LONGEST else last[:_LONGEST] + '...'}"
