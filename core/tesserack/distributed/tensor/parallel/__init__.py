"""Tensor parallelism of modules: ``torch.distributed.tensor.parallel``."""

from tesserack.distributed.tensor.parallel.api import parallelize_module
from tesserack.distributed.tensor.parallel.loss import loss_parallel
from tesserack.distributed.tensor.parallel.style import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
    "loss_parallel",
    "parallelize_module",
]
