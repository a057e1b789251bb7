"""What a distributed tensor is besides this rank's memory: mesh, placements, the whole tensor's outline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tesserack.distributed.device_mesh import DeviceMesh
from tesserack.distributed.tensor.placement_types import Placement, Replicate, Shard

__all__ = [
    "DTensorSpec",
    "TensorMeta",
    "dense_stride",
    "held_parts",
    "local_shape",
    "local_shape_and_offset",
    "normalized",
]


class TensorMeta(NamedTuple):
    """The outline of the whole tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any


class DTensorSpec:
    """Mesh, placements (one for each dim of the mesh) and the whole tensor's outline. Never changed once made."""

    __slots__ = ("_hash", "mesh", "placements", "tensor_meta")

    def __init__(self, mesh: DeviceMesh, placements: tuple[Placement, ...], tensor_meta: TensorMeta) -> None:
        self.mesh, self.placements, self.tensor_meta = mesh, placements, tensor_meta
        self._hash: int | None = None

    device_mesh = property(lambda self: self.mesh)
    shape = property(lambda self: self.tensor_meta.shape)
    stride = property(lambda self: self.tensor_meta.stride)
    dtype = property(lambda self: self.tensor_meta.dtype)
    ndim = property(lambda self: len(self.tensor_meta.shape))

    def placed(self, placements: tuple[Placement, ...]) -> DTensorSpec:
        """The same tensor, placed otherwise."""
        return DTensorSpec(self.mesh, placements, self.tensor_meta)

    def local_shape(self) -> tuple[int, ...]:
        """The shape of what this rank holds."""
        return local_shape(self.shape, self.mesh, self.placements)

    def is_replicated(self) -> bool:
        """Whether every rank holds the whole."""
        return all(p.is_replicate() for p in self.placements)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, DTensorSpec):
            return NotImplemented
        same = self.placements == other.placements and self.tensor_meta == other.tensor_meta
        return same and (self.mesh is other.mesh or self.mesh == other.mesh)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.mesh, self.placements, self.tensor_meta))
        return self._hash

    def __repr__(self) -> str:
        return f"DTensorSpec({self.mesh}, {self.placements}, {tuple(self.shape)}, {self.dtype})"

    def __reduce__(self) -> Any:
        return DTensorSpec, (self.mesh, self.placements, self.tensor_meta)


def dense_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    return tuple(math.prod(max(1, n) for n in shape[k + 1 :]) for k in range(len(shape)))


def normalized(
    op: str, mesh: DeviceMesh, placements: Sequence[Placement] | None, ndim: int, *, partial: bool = True
) -> tuple[Placement, ...]:
    """Placements for every dim of the mesh, with dims counted from the first; ``ValueError`` for others."""
    given = tuple(Replicate() for _ in range(mesh.ndim)) if placements is None else tuple(placements)
    if len(given) != mesh.ndim:
        raise ValueError(
            f"{op}: `placements` must have the same length as `device_mesh.ndim`! Found placements length: "
            f"{len(given)}, and device_mesh.ndim: {mesh.ndim}."
        )
    return tuple(_normal(op, p, ndim, partial) for p in given)


def _normal(op: str, placement: Any, ndim: int, partial: bool) -> Placement:
    if not isinstance(placement, Placement):
        raise TypeError(f"{op}: expected Shard, Replicate or Partial, got {placement!r}")
    if placement.is_partial() and not partial:
        raise ValueError(f"{op}: expected Shard or Replicate, got {placement}; Partial is made by operators")
    if isinstance(placement, Shard) and placement.dim < 0:
        if placement.dim + ndim < 0:
            raise IndexError(f"{op}: expected a dim of a tensor of {ndim} dims, got {placement!r}")
        if type(placement) is not Shard:
            raise ValueError(f"{op}: expected a dim counted from the first, got {placement!r}")
        return Shard(placement.dim + ndim)
    if isinstance(placement, Shard) and placement.dim >= max(ndim, 1):
        raise IndexError(f"{op}: expected a dim of a tensor of {ndim} dims, got {placement!r}")
    return placement


def local_shape(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[int, ...]:
    """The shape of what this rank holds of a tensor; of nothing where the rank is not in the mesh."""
    at = mesh.get_coordinate()
    if at is None:
        return (0,)
    sizes = list(shape)
    for mesh_dim, placement in enumerate(placements):
        if isinstance(placement, Shard):
            mine = placement.parts(sizes[placement.dim], mesh.size(mesh_dim))[at[mesh_dim]]
            sizes[placement.dim] = sum(length for _, length in mine)
    return tuple(sizes)


def local_shape_and_offset(
    shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of what this rank holds, and where in the whole its first element lies."""
    if mesh.get_coordinate() is None:
        return (0,), ()
    held = held_parts(shape, mesh, placements)
    sizes = tuple(sum(length for _, length in parts) for parts in held)
    firsts = (next((start for start, length in parts if length), None) for parts in held)
    return sizes, tuple(n if first is None else first for n, first in zip(shape, firsts, strict=True))


def held_parts(
    shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], at: Sequence[int] | None = None
) -> list[list[tuple[int, int]]]:
    """Of each dim the ``(start, length)`` that the rank at a coordinate (by default this one) holds, in order."""
    at = mesh.get_coordinate() if at is None else at
    held = [[(0, n)] for n in shape]
    for mesh_dim, placement in enumerate(placements):
        if isinstance(placement, Shard):
            before = held[placement.dim]
            mine = placement.parts(sum(length for _, length in before), mesh.size(mesh_dim))[(at or ())[mesh_dim]]
            held[placement.dim] = [piece for start, length in mine for piece in _cut(before, start, length)]
    return held


def _cut(parts: list[tuple[int, int]], start: int, length: int) -> list[tuple[int, int]]:
    """Of parts that lie one after another, those from position ``start`` on."""
    found, at = [], 0
    for first, size in parts:
        low, high = max(start, at), min(start + length, at + size)
        if high > low:
            found.append((first + low - at, high - low))
        at += size
    return found
