"""Tensors and modules over the ranks of a mesh: ``torch.distributed.tensor``."""

from tesserack.distributed.device_mesh import DeviceMesh, init_device_mesh
from tesserack.distributed.tensor import _rules as _rules
from tesserack.distributed.tensor import _saving as _saving
from tesserack.distributed.tensor._api import DTensor
from tesserack.distributed.tensor._factories import (
    distribute_module,
    distribute_tensor,
    empty,
    full,
    ones,
    rand,
    randn,
    zeros,
)
from tesserack.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "init_device_mesh",
    "ones",
    "rand",
    "randn",
    "zeros",
]
