"""Random numbers of a whole tensor, of which each rank keeps its part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed.device_mesh import DeviceMesh
from tesserack.distributed.tensor import _comm
from tesserack.distributed.tensor._redistribute import shard_of
from tesserack.distributed.tensor._spec import DTensorSpec
from tesserack.distributed.tensor.placement_types import Shard
from tesserack.ops.random import default_generator

__all__ = ["drawn", "manual_seed"]


def manual_seed(seed: int, device_mesh: DeviceMesh) -> None:
    """Set the seed for random operators on DTensors of a mesh; every rank gives the same one."""
    told = [ts.tensor([seed], dtype=ts.int64)]
    for mesh_dim in range(device_mesh.ndim):
        if device_mesh.size(mesh_dim) > 1 and device_mesh.get_coordinate() is not None:
            told.append(_comm.broadcast(told[0].clone(), device_mesh.get_group(mesh_dim)))
    if any(int(t.item()) != seed for t in told):
        raise RuntimeError("manual_seed: calling manual_seed function over a device mesh with different seed values.")
    ts.manual_seed(seed)


def _agreed(generator: Any, mesh: DeviceMesh) -> tuple[int, int]:
    """The position of the mesh's first rank, which all draw from: they might have drawn differently by themselves."""
    seed, offset = generator._position()
    told = ts.tensor([seed & 0xFFFFFFFF, seed >> 32, offset], dtype=ts.int64)
    # After each dim, ranks that differ in it or in those before have the same.
    for mesh_dim in range(mesh.ndim):
        if mesh.size(mesh_dim) > 1:
            told = _comm.broadcast(told, mesh.get_group(mesh_dim))
    low, high, offset = told.tolist()
    return low | high << 32, offset


def drawn(spec: DTensorSpec, draw: Callable[[Sequence[int]], Tensor], generator: Any = None) -> Tensor:
    """This rank's part of ``draw(shape)`` of the whole shape.

    All ranks draw from the position of the mesh's first, and go on from their own as far as one process would have.
    """
    mesh = spec.mesh
    if mesh.get_coordinate() is None:
        return draw([0])
    generator = generator or default_generator(mesh.device_type)
    mine = generator._position()
    agreed = _agreed(generator, mesh)
    generator._set_position(*agreed)
    try:
        whole = draw(list(spec.shape))
        used = generator._position()[1] - agreed[1]
    finally:
        generator._set_position(*mine)
    generator._set_position(mine[0], mine[1] + used)
    if not any(isinstance(p, Shard) for p in spec.placements):
        return whole
    return shard_of(whole, mesh, spec.placements)
