"""Ranks laid out in several dims, with a group along each: ``torch.distributed.device_mesh``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _world

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """Ranks of the world in an array; ranks that differ in one coordinate alone are a group.

    ``mesh`` is a tensor or nested list of ranks. Every rank of the world makes the mesh. ``mesh["name"]`` is this
    rank's part along one or several dims.
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        _groups: Sequence[Any] | None = None,
    ) -> None:
        self.device_type = device_type
        self.mesh: Tensor = (
            mesh.detach().cpu().to(ts.int64) if isinstance(mesh, Tensor) else ts.tensor(mesh, dtype=ts.int64)
        )
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self.mesh.ndim:
            raise ValueError(f"DeviceMesh: expected {self.mesh.ndim} names of dims, got {self.mesh_dim_names}")
        if not _world.is_initialized():
            _world.init_process_group()
        seen = self.mesh.flatten().tolist()
        if len(set(seen)) != len(seen) or any(not 0 <= r < _world.get_world_size() for r in seen):
            raise ValueError(f"DeviceMesh: expected different ranks below {_world.get_world_size()}, got {seen}")
        self._groups = list(_groups) if _groups is not None else [self._made(dim) for dim in range(self.mesh.ndim)]

    def _made(self, dim: int) -> Any:
        """This rank's group along a dim; all ranks make all of them, in one order."""
        if self.mesh.ndim == 1 and self.mesh.tolist() == list(range(_world.get_world_size())):
            return _world.get_default_group()
        rows = self.mesh.movedim(dim, -1).reshape(-1, self.mesh.shape[dim]).tolist()
        mine, _ = _world.new_subgroups_by_enumeration(rows)
        return mine

    @property
    def ndim(self) -> int:
        """How many dims there are."""
        return self.mesh.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """How many ranks along each."""
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """How many ranks, along a dim or in all."""
        return self.mesh.numel() if mesh_dim is None else self.mesh.shape[mesh_dim]

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(f"DeviceMesh: expected mesh_dim for a mesh of {self.ndim} dims")
            return 0
        if isinstance(mesh_dim, int):
            return mesh_dim % self.ndim
        if mesh_dim not in (self.mesh_dim_names or ()):
            raise KeyError(f"Invalid mesh_dim_name {mesh_dim!r}; this mesh has {self.mesh_dim_names}")
        return (self.mesh_dim_names or ()).index(mesh_dim)

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """This rank's group along a dim."""
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        """Its group along each dim."""
        return list(self._groups)

    def get_coordinate(self) -> list[int] | None:
        """Where this rank stands; None where it does not."""
        at = (self.mesh == _world.get_rank()).nonzero()
        return [int(n) for n in at[0].tolist()] if len(at) else None

    def get_rank(self) -> int:
        """This process's number in the world."""
        return _world.get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Its number along a dim."""
        return _world.get_rank(self.get_group(mesh_dim))

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        dims = [self._dim(name) for name in wanted]
        at = self.get_coordinate()
        if at is None:
            raise RuntimeError("DeviceMesh: expected a rank of the mesh to take a part of it")
        index = tuple(slice(None) if dim in dims else at[dim] for dim in range(self.ndim))
        part = self.mesh[index]
        order = [sorted(dims).index(dim) for dim in dims]
        groups = [self._groups[dim] for dim in dims]
        return DeviceMesh(self.device_type, part.permute(order), mesh_dim_names=wanted, _groups=groups)

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: Any = None) -> DeviceMesh:
        """A mesh of groups that exist, one for each dim of ``mesh``."""
        groups = list(group) if isinstance(group, (list, tuple)) else [group]
        ranks = _world.get_process_group_ranks(groups[0]) if mesh is None else mesh
        return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, _groups=groups)

    def __enter__(self) -> DeviceMesh:
        return self

    def __exit__(self, *raised: Any) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        alike = self.device_type == other.device_type and self.mesh_dim_names == other.mesh_dim_names
        return alike and self.shape == other.shape and self.mesh.tolist() == other.mesh.tolist()

    def __hash__(self) -> int:
        return hash((self.device_type, self.shape, self.mesh_dim_names, tuple(self.mesh.flatten().tolist())))

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh('{self.device_type}', {self.mesh.tolist()}{names})"


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """All ranks of the world, in order, laid out in these sizes.

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "model"))["model"]
    DeviceMesh('cpu', [0], mesh_dim_names=('model',))
    >>> ts.distributed.destroy_process_group()
    """
    if not _world.is_initialized():
        _world.init_process_group()
    if math.prod(mesh_shape) != _world.get_world_size():
        raise RuntimeError(
            f"init_device_mesh: expected a shape of {_world.get_world_size()} ranks, got {tuple(mesh_shape)}"
        )
    if mesh_dim_names is not None and len(mesh_dim_names) != len(mesh_shape):
        raise RuntimeError(
            f"init_device_mesh: expected a name for each of {len(mesh_shape)} dims, got {mesh_dim_names}"
        )
    mesh = ts.arange(math.prod(mesh_shape)).reshape(tuple(mesh_shape))
    return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)
