"""From one placement to another: which collectives, in which order, so that the parts lie where they belong."""

from __future__ import annotations

from collections.abc import Sequence

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed.device_mesh import DeviceMesh
from tesserack.distributed.tensor import _comm
from tesserack.distributed.tensor._spec import DTensorSpec
from tesserack.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = ["redistribute_local", "shard_of"]


def redistribute_local(local: Tensor, current: DTensorSpec, placements: Sequence[Placement]) -> Tensor:
    """This rank's memory as other placements have it. Every rank of the mesh calls this.

    Parts are cut along the first dim of the mesh first; so where one that cuts a dim of the tensor changes, later ones
    that cut the same dim are brought together before it and cut again after it.
    """
    mesh, target = current.mesh, list(placements)
    at = mesh.get_coordinate()
    if at is None or list(current.placements) == target:
        return local
    walk = _Walk(local, mesh, current.shape, list(current.placements), at)
    for mesh_dim in reversed(range(mesh.ndim)):
        if walk.in_the_way(mesh_dim, target):
            walk.change(mesh_dim, Replicate())
    for mesh_dim in range(mesh.ndim):
        walk.change(mesh_dim, target[mesh_dim])
    return walk.local


class _Walk:
    """This rank's memory on its way."""

    def __init__(
        self, local: Tensor, mesh: DeviceMesh, shape: Sequence[int], placements: list[Placement], at: Sequence[int]
    ) -> None:
        self.local, self.mesh, self.shape, self.placements, self.at = local, mesh, tuple(shape), placements, at

    def in_the_way(self, mesh_dim: int, target: list[Placement]) -> bool:
        """Whether what this dim of the mesh has cut was cut by an earlier one that is to change."""
        mine = self.placements[mesh_dim]
        if not isinstance(mine, Shard):
            return False
        earlier = (
            p for k in range(mesh_dim) if self.placements[k] != target[k] for p in (self.placements[k], target[k])
        )
        return any(p.is_shard(mine.dim) for p in earlier)

    def _size_before(self, mesh_dim: int, dim: int) -> int:
        """How much of a tensor's dim the earlier dims of the mesh leave to this rank."""
        size = self.shape[dim]
        for k, placement in enumerate(self.placements[:mesh_dim]):
            if isinstance(placement, Shard) and placement.dim == dim:
                size = sum(n for _, n in placement.parts(size, self.mesh.size(k))[self.at[k]])
        return size

    def change(self, mesh_dim: int, target: Placement) -> None:
        """Bring one dim of the mesh to another placement."""
        current = self.placements[mesh_dim]
        if current == target:
            return
        if self.mesh.size(mesh_dim) > 1:
            self.local = self._changed(mesh_dim, current, target)
        self.placements[mesh_dim] = target

    def _changed(self, mesh_dim: int, current: Placement, target: Placement) -> Tensor:
        if isinstance(current, Partial):
            if isinstance(target, Partial):
                raise RuntimeError(f"redistribute: expected Shard or Replicate from {current!r}, got {target!r}")
            return self._reduced(mesh_dim, current, target)
        if isinstance(current, Replicate):
            return self._divided(mesh_dim, target)
        assert isinstance(current, Shard)
        if type(current) is type(target) is Shard:
            return self._turned(mesh_dim, current, target)
        whole = self._gathered(mesh_dim, current)
        if isinstance(target, Replicate):
            return whole
        self.local = whole
        return self._divided(mesh_dim, target)

    def _reduced(self, mesh_dim: int, current: Partial, target: Placement) -> Tensor:
        group = self.mesh.get_group(mesh_dim)
        if type(target) is not Shard:
            whole = _comm.all_reduce(self.local, current.reduce_op, group)
            if isinstance(target, Replicate):
                return whole
            self.local = whole
            return self._divided(mesh_dim, target)
        parts = self._parts(mesh_dim, target, self.local)
        return _comm.reduce_scatter(parts, self.at[mesh_dim], current.reduce_op, group)

    def _parts(self, mesh_dim: int, placement: Shard, local: Tensor) -> list[Tensor]:
        """What each rank is to hold of a tensor that this one holds whole."""
        pieces = placement.parts(local.shape[placement.dim], self.mesh.size(mesh_dim))
        return [_pieces(local, placement.dim, mine) for mine in pieces]

    def _divided(self, mesh_dim: int, target: Placement) -> Tensor:
        if isinstance(target, Partial):
            return _partitioned(self.local, target, self.at[mesh_dim])
        assert isinstance(target, Shard)
        pieces = target.parts(self.local.shape[target.dim], self.mesh.size(mesh_dim))[self.at[mesh_dim]]
        return _pieces(self.local, target.dim, pieces).clone(memory_format=ts.contiguous_format)

    def _gathered(self, mesh_dim: int, current: Shard) -> Tensor:
        before = self._size_before(mesh_dim, current.dim)
        pieces = current.parts(before, self.mesh.size(mesh_dim))
        sizes = [sum(n for _, n in mine) for mine in pieces]
        whole = _comm.all_gather(self.local, current.dim, sizes, self.mesh.get_group(mesh_dim))
        if type(current) is Shard:
            return whole
        return whole.index_select(current.dim, ts.tensor(_places(pieces), dtype=ts.int64, device=whole.device))

    def _turned(self, mesh_dim: int, current: Shard, target: Shard) -> Tensor:
        ranks = self.mesh.size(mesh_dim)
        pieces = current.parts(self._size_before(mesh_dim, current.dim), ranks)
        sizes = [mine[0][1] for mine in pieces]
        parts = self._parts(mesh_dim, target, self.local)
        return _comm.all_to_all(parts, current.dim, sizes, self.at[mesh_dim], self.mesh.get_group(mesh_dim))


def _pieces(local: Tensor, dim: int, pieces: Sequence[tuple[int, int]]) -> Tensor:
    if len(pieces) == 1:
        return local.narrow(dim, *pieces[0])
    return ts.cat([local.narrow(dim, *piece) for piece in pieces], dim)


def _places(pieces: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """Where each element of the whole lies among the ranks' parts put side by side."""
    order = [i for mine in pieces for start, length in mine for i in range(start, start + length)]
    places = [0] * len(order)
    for place, element in enumerate(order):
        places[element] = place
    return places


def _partitioned(local: Tensor, target: Partial, at: int) -> Tensor:
    """A whole tensor as one part of what is to be combined: exactly the same once it is."""
    if target.reduce_op in ("avg", "max", "min", "band", "bor") or at == 0:
        return local.clone()
    return ts.ones_like(local) if target.reduce_op == "product" else ts.zeros_like(local)


def shard_of(whole: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> Tensor:
    """What this rank holds of a tensor that it has whole, as a copy."""
    at = mesh.get_coordinate()
    if at is None:
        return whole.new_empty((0,))
    walk = _Walk(whole, mesh, whole.shape, [Replicate()] * mesh.ndim, at)
    for mesh_dim, placement in enumerate(placements):
        walk.change(mesh_dim, placement)
    return whole.clone(memory_format=ts.contiguous_format) if walk.local is whole else walk.local
