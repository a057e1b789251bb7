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


class DistributedOptimizer:
    """Absent, as remote references (``rpc``) are: ``NotImplementedError``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "DistributedOptimizer: parameters on other ranks by rpc are absent; divide a model with fully_shard, or "
            "its optimizer's state with ZeroRedundancyOptimizer"
        )
