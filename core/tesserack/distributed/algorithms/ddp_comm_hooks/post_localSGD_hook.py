"""Averages over all ranks at first, and later over those of a machine: ``...ddp_comm_hooks.post_localSGD_hook``.

Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020. An averager takes the mean of parameters
now and then (``torch.distributed.algorithms.model_averaging``).
"""

from __future__ import annotations

from typing import Any

from tesserack import distributed as dist
from tesserack.distributed.algorithms.ddp_comm_hooks import default_hooks

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """Over ``process_group`` (None: all) for ``start_localSGD_iter`` iterations, then over ``subgroup`` (None: the
    ranks of a machine), or over nobody without ``post_local_gradient_allreduce``.
    """

    def __init__(
        self,
        process_group: Any,
        subgroup: Any,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: Any) -> None:
        """Count an iteration with its last bucket."""
        self.iter += bool(bucket.is_last())


def post_localSGD_hook(state: PostLocalSGDState, bucket: Any) -> Any:
    """The average over the ranks that the state says by now."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return default_hooks.allreduce_hook(state.process_group, bucket)
    if not state.post_local_gradient_allreduce:
        return default_hooks.noop_hook(None, bucket)
    if state.subgroup is None:
        state.subgroup, _ = dist.new_subgroups()
    return default_hooks.allreduce_hook(state.subgroup, bucket)
