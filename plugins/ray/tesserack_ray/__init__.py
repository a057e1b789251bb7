"""Training by actors of Ray: a train loop on several ranks, started again from its last checkpoint when one fails."""

from tesserack_ray.checkpoint import Checkpoint
from tesserack_ray.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, TesserackConfig
from tesserack_ray.prepare import prepare_data_loader, prepare_model
from tesserack_ray.results import Result, TrainingFailedError
from tesserack_ray.session import TrainContext, get_checkpoint, get_context, report
from tesserack_ray.trainer import TesserackTrainer

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "FailureConfig",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "TesserackConfig",
    "TesserackTrainer",
    "TrainContext",
    "TrainingFailedError",
    "get_checkpoint",
    "get_context",
    "prepare_data_loader",
    "prepare_model",
    "report",
]
