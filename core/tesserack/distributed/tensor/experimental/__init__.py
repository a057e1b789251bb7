"""What PyTorch has as experimental beside DTensor: context parallelism, functions on parts, rules of one's own."""

from tesserack.distributed.tensor.experimental._attention import context_parallel
from tesserack.distributed.tensor.experimental._functions import implicit_replication, local_map, register_sharding

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]
