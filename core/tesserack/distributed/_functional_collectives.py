"""Collectives that return new tensors: ``torch.distributed._functional_collectives``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _operators as operators
from tesserack.distributed._operators import reduction as _op
from tesserack.distributed._world import (
    GroupMember,
    at_end,
    get_default_group,
    get_world_size,
    new_subgroups_by_enumeration,
    resolve,
)
from tesserack.distributed.device_mesh import DeviceMesh
from tesserack.distributed.nn import functional as differentiable

__all__ = [
    "AsyncCollectiveTensor",
    "all_gather_into_tensor_coalesced",
    "all_gather_tensor",
    "all_gather_tensor_autograd",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all_single",
    "all_to_all_single_autograd",
    "broadcast",
    "permute_tensor",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd",
    "reduce_scatter_tensor_coalesced",
    "wait_tensor",
]

AsyncCollectiveTensor = Tensor


def _reduced_by(op: Any) -> str:
    """A reduction's name, as operators take it."""
    return str(op).lower() if isinstance(op, str) else str(_op(op).op.name).lower()


def _name(group: Any) -> str | None:
    """A group's name, as operators take it; None outside of it, where nothing happens."""
    made = resolve(_group(group))
    return None if made is None else made.group_name


_of_ranks: dict[
    tuple[str, tuple[tuple[int, ...], ...]], Any
] = {}  # groups made of lists of ranks, by the world they are of
at_end.append(_of_ranks.clear)


def _group(given: Any) -> Any:
    """A group, as functions here take it: also a mesh of one dim, a mesh and a dim of it, or ranks of the world, listed
    or in rows of which this rank is in one. Every rank of the world gives the same."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], DeviceMesh):
        return given[0].get_group(given[1])
    if not isinstance(given, (list, tuple)):
        return given
    world = get_default_group()
    rows = [list(row) for row in given] if given and isinstance(given[0], (list, tuple)) else [list(given)]
    if rows == [list(range(world.size()))]:
        return world
    key = world.group_name, tuple(tuple(row) for row in rows)
    if key not in _of_ranks:
        _of_ranks[key] = new_subgroups_by_enumeration(rows)[0]
    return _of_ranks[key] or GroupMember.NON_GROUP_MEMBER


def _size(group: Any) -> int:
    return get_world_size(_group(group))


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor, which is there already."""
    return tensor


def all_reduce(self: Tensor, reduceOp: Any, group: Any, tag: str = "") -> Tensor:
    """Combined over all ranks; ``reduceOp`` by name: ``"sum"``, ``"avg"``, ``"max"``..."""
    name = _name(group)
    return self.detach().clone() if name is None else operators.all_reduce(self.detach(), _reduced_by(reduceOp), name)


def all_reduce_coalesced(self: Sequence[Tensor], reduceOp: Any, group: Any, tag: str = "") -> list[Tensor]:
    """The same of each of several tensors."""
    return [all_reduce(t, reduceOp, group) for t in self]


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """The tensor of rank ``src`` of the group."""
    name = _name(group)
    return self.detach().clone() if name is None else operators.broadcast(self.detach(), src, name)


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """Each rank's tensor, side by side along a dim."""
    name, size = _name(group), _size(group)
    if name is None:
        return self.detach().clone()
    source = self.detach() if self.ndim else self.detach().view(1)
    gathered = operators.all_gather_into_tensor(source, size, name)
    return gathered if gather_dim in (0, -source.ndim) else ts.cat(gathered.chunk(size), dim=gather_dim)


def all_gather_tensor_autograd(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The same, with a gradient."""
    return ts.cat(differentiable.all_gather(self, _group(group)), dim=gather_dim)


def reduce_scatter_tensor(self: Tensor, reduceOp: Any, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """This rank's part, along a dim, of what is combined over all ranks."""
    name, size = _name(group), _size(group)
    if name is None:
        return self.detach().clone()
    source = self.detach()
    if scatter_dim not in (0, -source.ndim):
        source = ts.cat(source.chunk(size, dim=scatter_dim))
    out: Tensor = operators.reduce_scatter_tensor(source, _reduced_by(reduceOp), size, name)
    return out


def all_gather_into_tensor_coalesced(self: Sequence[Tensor], group: Any, tag: str = "") -> list[Tensor]:
    """Each rank's of each of several tensors, along dim 0."""
    return [all_gather_tensor(t, 0, group) for t in self]


def reduce_scatter_tensor_coalesced(
    inputs: Sequence[Tensor], reduceOp: Any, scatter_dim: Sequence[int], group: Any, tag: str = ""
) -> list[Tensor]:
    """This rank's part of each of several tensors that are combined over all ranks, along a dim of each."""
    return [reduce_scatter_tensor(t, reduceOp, dim, group) for t, dim in zip(inputs, scatter_dim, strict=True)]


def reduce_scatter_tensor_autograd(self: Tensor, reduceOp: Any, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """The same, with a gradient."""
    parts = self.chunk(_size(group), dim=scatter_dim)
    return differentiable.reduce_scatter(parts[0], parts, _op(reduceOp), _group(group))


def _sized(self: Tensor, output_split_sizes: Sequence[int] | None) -> Tensor:
    rows = self.shape[0] if not output_split_sizes else sum(output_split_sizes)
    return self.new_empty((rows, *self.shape[1:]))


def all_to_all_single(
    self: Tensor, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = ""
) -> Tensor:
    """Rows to each rank and from each."""
    name = _name(group)
    if name is None:
        return _sized(self.detach(), output_split_sizes)
    out: Tensor = operators.all_to_all_single(self.detach(), output_split_sizes or [], input_split_sizes or [], name)
    return out


def permute_tensor(self: Tensor, src_dst: Sequence[int], group: Any, tag: str = "") -> Tensor:
    """The tensor of the rank that has this one's number in ``src_dst``: rank ``k`` sends to rank ``src_dst[k]``."""
    made = resolve(_group(group))
    if made is None:
        return self.detach().clone()
    if sorted(src_dst) != list(range(made.size())):
        raise ValueError(f"permute_tensor: expected each rank below {made.size()} once, got {list(src_dst)}")
    mine = made.rank()
    rows = self.shape[0]
    give = [rows if k == src_dst[mine] else 0 for k in range(made.size())]
    take = [rows if src_dst[k] == mine else 0 for k in range(made.size())]
    return all_to_all_single(self, take, give, group)


def all_to_all_single_autograd(
    self: Tensor, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = ""
) -> Tensor:
    """The same, with a gradient."""
    empty = _sized(self, output_split_sizes)
    return differentiable.all_to_all_single(empty, self, output_split_sizes, input_split_sizes, _group(group))
