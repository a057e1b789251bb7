"""What a training is given beside its loop, by Ray Train's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig", "TesserackConfig"]


@dataclass
class ScalingConfig:
    """How many workers, and what each holds. ``num_workers=(least, most)``: as many as fit when an attempt begins.

    ``resources_per_worker`` are Ray's (by default a CPU, and a GPU with ``use_gpu``), ``placement_strategy`` is that of
    the placement group: ``PACK``, ``SPREAD``, ``STRICT_PACK``, ``STRICT_SPREAD``.
    """

    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: dict[str, float] | None = None
    placement_strategy: str = "PACK"

    def __post_init__(self) -> None:
        least, most = self.bounds
        if not 1 <= least <= most:
            raise ValueError(
                f"ScalingConfig: expected num_workers from 1 on, least before most, got {self.num_workers}"
            )

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the most workers."""
        return (self.num_workers, self.num_workers) if isinstance(self.num_workers, int) else self.num_workers

    @property
    def bundle(self) -> dict[str, float]:
        """What one worker holds."""
        held = {"CPU": 1.0} | ({"GPU": 1.0} if self.use_gpu else {})
        return {name: amount for name, amount in (held | (self.resources_per_worker or {})).items() if amount}


@dataclass
class FailureConfig:
    """How often an attempt may fail before the training does; -1: as often as it likes."""

    max_failures: int = 0


@dataclass
class CheckpointConfig:
    """How many checkpoints are kept (None: all), and by which metric they are the best: the last ones without one."""

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"

    def __post_init__(self) -> None:
        if self.num_to_keep is not None and self.num_to_keep < 1:
            raise ValueError(f"CheckpointConfig: expected num_to_keep from 1 on, or None, got {self.num_to_keep}")
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(
                "CheckpointConfig: expected checkpoint_score_order to be max or min, got "
                f"{self.checkpoint_score_order!r}"
            )


@dataclass
class RunConfig:
    """What a training is called, and where its checkpoints lie: a folder that all nodes and the driver see.

    A training of the same name in the same place goes on from its last checkpoint.
    """

    name: str | None = None
    storage_path: str | None = None
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)


@dataclass
class TesserackConfig:
    """How ranks are joined: the communicator (None: what fits), the limit of every wait, and of the start."""

    backend: str | None = None
    timeout: timedelta = timedelta(minutes=30)
    start_timeout: timedelta = timedelta(minutes=5)
