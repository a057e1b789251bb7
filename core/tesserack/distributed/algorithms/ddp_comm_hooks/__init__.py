"""Hooks that say how buckets of gradients are reduced."""

from tesserack.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

__all__ = ["default_hooks", "powerSGD_hook"]
