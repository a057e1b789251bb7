"""Optimizers over several ranks: ``torch.distributed.optim``, by name and meaning."""

from typing import Any

from tesserack.distributed.optim.apply_optimizer_in_backward import (
    _apply_optimizer_in_backward as _apply_optimizer_in_backward,
)
from tesserack.distributed.optim.apply_optimizer_in_backward import (
    _get_in_backward_optimizers as _get_in_backward_optimizers,
)
from tesserack.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer
from tesserack.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]


def __getattr__(name: str) -> Any:
    if name == "DistributedOptimizer":  # brings calls into other processes, which few need
        from tesserack.distributed.optim.optimizer import DistributedOptimizer

        return DistributedOptimizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
