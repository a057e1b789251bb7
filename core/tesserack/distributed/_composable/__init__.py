"""Ways to train that change a module in place, and may be put together: ``torch.distributed._composable``."""

from tesserack.distributed._composable.checkpoint_activation import checkpoint
from tesserack.distributed._composable.replicate import replicate
from tesserack.distributed.fsdp import fully_shard

__all__ = ["checkpoint", "fully_shard", "replicate"]
