"""Collectives that return new tensors: ``torch.distributed._functional_collectives``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _collectives as over
from tesserack.distributed._reduce_op import RedOpType, ReduceOp
from tesserack.distributed._world import get_world_size, resolve
from tesserack.distributed.nn import functional as differentiable

__all__ = [
    "AsyncCollectiveTensor",
    "all_gather_tensor",
    "all_gather_tensor_autograd",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all_single",
    "all_to_all_single_autograd",
    "broadcast",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd",
    "wait_tensor",
]

AsyncCollectiveTensor = Tensor


def _op(name: Any) -> Any:
    return ReduceOp(RedOpType[name.upper()]) if isinstance(name, str) else name


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor, which is there already."""
    return tensor


def all_reduce(self: Tensor, reduceOp: Any, group: Any, tag: str = "") -> Tensor:
    """Combined over all ranks; ``reduceOp`` by name: ``"sum"``, ``"avg"``, ``"max"``..."""
    out = self.detach().clone(memory_format=ts.contiguous_format)
    over.all_reduce(out, _op(reduceOp), group)
    return out


def all_reduce_coalesced(self: Sequence[Tensor], reduceOp: Any, group: Any, tag: str = "") -> list[Tensor]:
    """The same of each of several tensors."""
    return [all_reduce(t, reduceOp, group) for t in self]


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """The tensor of rank ``src`` of the group."""
    out = self.detach().clone(memory_format=ts.contiguous_format)
    over.broadcast(out, group=group, group_src=src)
    return out


def _gathered(self: Tensor, group: Any) -> tuple[Tensor, ...]:
    made = [ts.empty_like(self, memory_format=ts.contiguous_format) for _ in range(get_world_size(group))]
    over.all_gather(made, self.detach(), group)
    return tuple(made)


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """Each rank's tensor, side by side along a dim."""
    return ts.cat(_gathered(self, group), dim=gather_dim)


def all_gather_tensor_autograd(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The same, with a gradient."""
    return ts.cat(differentiable.all_gather(self, group), dim=gather_dim)


def reduce_scatter_tensor(self: Tensor, reduceOp: Any, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """This rank's part, along a dim, of what is combined over all ranks."""
    parts = self.detach().chunk(get_world_size(group), dim=scatter_dim)
    made = resolve(group)
    assert made is not None
    out = ts.empty_like(parts[made.rank()], memory_format=ts.contiguous_format)
    over.reduce_scatter(out, list(parts), _op(reduceOp), group)
    return out


def reduce_scatter_tensor_autograd(self: Tensor, reduceOp: Any, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """The same, with a gradient."""
    return differentiable.reduce_scatter(self.chunk(get_world_size(group), dim=scatter_dim), _op(reduceOp), group)


def _sized(self: Tensor, output_split_sizes: Sequence[int] | None) -> Tensor:
    rows = self.shape[0] if not output_split_sizes else sum(output_split_sizes)
    return self.new_empty((rows, *self.shape[1:]))


def all_to_all_single(
    self: Tensor, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = ""
) -> Tensor:
    """Rows to each rank and from each."""
    out = _sized(self.detach(), output_split_sizes)
    over.all_to_all_single(out, self.detach(), output_split_sizes, input_split_sizes, group)
    return out


def all_to_all_single_autograd(
    self: Tensor, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = ""
) -> Tensor:
    """The same, with a gradient."""
    empty = _sized(self, output_split_sizes)
    return differentiable.all_to_all_single(empty, self, output_split_sizes, input_split_sizes, group)
