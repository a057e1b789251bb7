"""Learning rates that change during training: call ``scheduler.step()`` after ``optimizer.step()``."""

from tesserack.optim.lr_scheduler._base import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from tesserack.optim.lr_scheduler._base import LRScheduler
from tesserack.optim.lr_scheduler._combined import ChainedScheduler, SequentialLR
from tesserack.optim.lr_scheduler._cyclic import CyclicLR
from tesserack.optim.lr_scheduler._factors import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from tesserack.optim.lr_scheduler._one_cycle import OneCycleLR
from tesserack.optim.lr_scheduler._plateau import ReduceLROnPlateau
from tesserack.optim.lr_scheduler._restarts import CosineAnnealingWarmRestarts


class _LRScheduler(LRScheduler):
    """The base under its name before PyTorch 2.0, from which programs still derive theirs."""


__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
