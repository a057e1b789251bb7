"""Ranks laid out in several dims, with a group along each: ``torch.distributed.device_mesh``."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _world

__all__ = ["DeviceMesh", "current_mesh", "init_device_mesh", "mesh_of"]

_entered: list[DeviceMesh] = []
_alive: weakref.WeakValueDictionary[int, DeviceMesh] = weakref.WeakValueDictionary()  # by id: equal ones are several


def current_mesh() -> DeviceMesh:
    """The mesh entered by ``with``. ``RuntimeError`` outside of one."""
    if not _entered:
        raise RuntimeError("No device mesh is currently active!")
    return _entered[-1]


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
            mesh.detach().cpu().to(ts.int64)
            if isinstance(mesh, Tensor)
            else ts.tensor(mesh, dtype=ts.int64, device="cpu")
        )
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self.mesh.ndim:
            raise ValueError(f"DeviceMesh: expected {self.mesh.ndim} names of dims, got {self.mesh_dim_names}")
        if len(set(self.mesh_dim_names or ())) != len(self.mesh_dim_names or ()):
            raise RuntimeError(f"Each mesh_dim_name must be unique. Found repeated ones in {self.mesh_dim_names}")
        if not _world.is_initialized():
            _world.init_process_group()
        seen = self.mesh.flatten().tolist()
        if len(set(seen)) != len(seen) or any(not 0 <= r < _world.get_world_size() for r in seen):
            raise ValueError(f"DeviceMesh: expected different ranks below {_world.get_world_size()}, got {seen}")
        self._ranks, self._shape = tuple(seen), tuple(self.mesh.shape)
        self._coordinate = self._place(_world.get_rank())
        self._root: DeviceMesh | None = None  # what this is a part of
        self._flattened: dict[str, DeviceMesh] = {}  # of a root: dims made of several, by name
        self._from_dims: list[int] = []  # of one of those: the root's dims
        self._groups = list(_groups) if _groups is not None else [self._made(dim) for dim in range(self.mesh.ndim)]
        _alive[id(self)] = self

    def _place(self, rank: int) -> list[int] | None:
        """Where a rank stands; None where it does not."""
        if rank not in self._ranks:
            return None
        found: list[int] = []
        at = self._ranks.index(rank)
        for size in reversed(self._shape):
            at, place = divmod(at, size)
            found.insert(0, place)
        return found

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
        return len(self._shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many ranks along each."""
        return self._shape

    def size(self, mesh_dim: int | None = None) -> int:
        """How many ranks, along a dim or in all."""
        return len(self._ranks) if mesh_dim is None else self._shape[mesh_dim]

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
        return self.get_all_groups()[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        """Its group along each dim."""
        if not self._groups:  # one that was unpickled
            self._groups = [self._made(dim) for dim in range(self.mesh.ndim)]
        return list(self._groups)

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Where this rank stands; None where it does not."""
        return None if self._coordinate is None else tuple(self._coordinate)

    def get_rank(self) -> int:
        """This process's number in the world."""
        return _world.get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Its number along a dim."""
        return _world.get_rank(self.get_group(mesh_dim))

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if len(wanted) == 1 and wanted[0] in self.root._flattened:
            return self.root._flattened[wanted[0]]
        if any(name in self.root._flattened for name in wanted):
            return self.root._part(wanted)
        return self._part(wanted)

    def _part(self, wanted: tuple[str, ...]) -> DeviceMesh:
        """This rank's part along dims by name, those that were made of several too."""
        made_of = {name: tuple(mesh._from_dims) for name, mesh in self._flattened.items()}
        lists = [made_of.get(name) or (self._dim(name),) for name in wanted]
        dims = [dim for each in lists for dim in each]
        if dims != sorted(dims):
            raise KeyError(
                f"Invalid mesh_dim_names {wanted} specified. Mesh dim indices should be in ascending order; this mesh "
                f"has {self.mesh_dim_names}"
            )
        at = self.get_coordinate()
        if at is None:
            raise RuntimeError("DeviceMesh: expected a rank of the mesh to take a part of it")
        index = tuple(slice(None) if dim in dims else at[dim] for dim in range(self.ndim))
        sizes = [math.prod(self._shape[dim] for dim in each) for each in lists]
        part = self.mesh[index].reshape(sizes)
        groups = [
            self._flattened[name].get_group() if name in made_of else self.get_all_groups()[each[0]]
            for name, each in zip(wanted, lists, strict=True)
        ]
        made = DeviceMesh(self.device_type, part, mesh_dim_names=wanted, _groups=groups)
        made._root = self.root
        return made

    def _flatten(self, mesh_dim_name: str | None = None, backend_override: Any = None) -> DeviceMesh:
        """One dim of all of this mesh's, which the root then has by name. Every rank of the root calls this."""
        root, names = self.root, self.mesh_dim_names
        if not names:
            raise RuntimeError("Cannot flatten a DeviceMesh without mesh_dim_names!")
        name = mesh_dim_name or "_".join(names)
        if self.ndim == 1 and name in names:
            return self
        dims = [root._dim(each) for each in names]
        known = root._flattened.get(name)
        if known is not None and known._from_dims == dims:
            return known
        if known is not None or name in (root.mesh_dim_names or ()):
            raise ValueError(f"DeviceMesh: expected a name that no dim has, got {name!r}")
        others = [dim for dim in range(root.ndim) if dim not in dims]
        rows = root.mesh.permute(others + dims).reshape(-1, self.size()).tolist()
        mine, _ = _world.new_subgroups_by_enumeration(rows)
        made = DeviceMesh(self.device_type, self.mesh.flatten(), mesh_dim_names=(name,), _groups=[mine])
        made._root, made._from_dims = root, dims
        root._flattened[name] = made
        return made

    def _unflatten(
        self,
        dim: int | str,
        mesh_sizes: Sequence[int],
        mesh_dim_names: Sequence[str],
        backend_override: Any = None,
    ) -> DeviceMesh:
        """The mesh with several dims in the place of one. Every rank of the root calls this."""
        names = self.mesh_dim_names
        if isinstance(dim, int) and dim >= self.ndim:
            raise ValueError(f"dim {dim} specified in `_unflatten` is out of range {self.ndim}")
        if isinstance(dim, str) and dim not in (names or ()):
            raise ValueError(f"dim {dim} specified in `_unflatten` is not in {names}")
        if len(mesh_sizes) != len(mesh_dim_names):
            raise RuntimeError("mesh_dim_names must have same length as mesh_sizes in _unflatten!")
        root, at = self.root, self._dim(dim)
        of_root = root.mesh_dim_names
        if names is None or of_root is None:
            raise RuntimeError("DeviceMesh: expected a mesh with names of dims to unflatten one")
        there = root._dim(names[at])
        whole = root.mesh.unflatten(there, tuple(mesh_sizes))
        of_root = (*of_root[:there], *mesh_dim_names, *of_root[there + 1 :])
        made = DeviceMesh(self.device_type, whole, mesh_dim_names=of_root)
        return made if self is root else made[(*names[:at], *mesh_dim_names, *names[at + 1 :])]

    @property
    def root(self) -> DeviceMesh:
        """The mesh that this is a part of, or itself."""
        return self if self._root is None else self._root

    def _get_root_mesh(self) -> DeviceMesh:
        return self.root

    @staticmethod
    def _concatenate(device_mesh_list: Sequence[DeviceMesh]) -> DeviceMesh:
        """The part of one root along the dims of several of its parts, with dims in the root's order."""
        root = device_mesh_list[0].root
        names = [name for mesh in device_mesh_list for name in mesh.mesh_dim_names or ()]
        if any(mesh.root is not root for mesh in device_mesh_list) or len(set(names)) != len(names):
            raise RuntimeError(f"_concatenate: expected parts of one mesh along different dims, got dims {names}")
        return root[tuple(names)]

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: Any = None) -> DeviceMesh:
        """A mesh of groups that exist, one for each dim of ``mesh``."""
        groups = list(group) if isinstance(group, (list, tuple)) else [group]
        ranks = _world.get_process_group_ranks(groups[0]) if mesh is None else mesh
        return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, _groups=groups)

    def __enter__(self) -> DeviceMesh:
        _entered.append(self)
        return self

    def __exit__(self, *raised: Any) -> None:
        _entered.pop()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return self._key() == other._key()

    def _key(self) -> tuple[Any, ...]:
        return self.device_type, self._shape, self.mesh_dim_names, self._ranks

    def __hash__(self) -> int:
        return hash(self._key())

    def _is_open(self) -> bool:
        """Whether its groups are of the world that there is now."""
        return any(_world.is_open(group) for group in self._groups)

    def __reduce__(self) -> Any:
        return mesh_of, (self.device_type, self.mesh, self.mesh_dim_names)

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh('{self.device_type}', {self.mesh.tolist()}{names})"


def mesh_of(device_type: str, ranks: Tensor, names: Any) -> DeviceMesh:
    """The mesh that a file tells of: one of this process that is the same, or else one whose groups are made on first
    need, by all of its ranks; without a process group, one that only tells where parts lie."""
    made = DeviceMesh.__new__(DeviceMesh)
    made.device_type, made.mesh, made.mesh_dim_names = device_type, ranks, names
    made._ranks, made._shape, made._groups = tuple(made.mesh.flatten().tolist()), tuple(made.mesh.shape), []
    made._coordinate = made._place(_world.get_rank()) if _world.is_initialized() else None
    made._root, made._flattened, made._from_dims = None, {}, []
    return next((mesh for mesh in list(_alive.values()) if mesh == made and mesh._is_open()), made)


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
    mesh = ts.arange(math.prod(mesh_shape), device="cpu").reshape(tuple(mesh_shape))
    return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)
