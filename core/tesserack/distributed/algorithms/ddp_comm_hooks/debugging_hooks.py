"""A hook that reduces nothing: ``torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks``."""

from tesserack.distributed.algorithms.ddp_comm_hooks.default_hooks import noop_hook

__all__ = ["noop_hook"]
