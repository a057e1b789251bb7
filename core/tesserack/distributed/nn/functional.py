"""Collectives with gradients: what a rank gives to others comes back to it as their gradients.

Unlike those of :mod:`tesserack.distributed` they return new tensors, and each rank calls ``backward`` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd import Function
from tesserack.distributed import _collectives as over
from tesserack.distributed._reduce_op import ReduceOp
from tesserack.distributed._world import get_group_rank, get_rank, get_world_size, resolve

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]


def _root(group: Any, rank: int) -> int:
    return get_group_rank(resolve(group), rank)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, op: Any, group: Any) -> Tensor:
        ctx.op, ctx.group = op, group
        out = tensor.clone()
        over.all_reduce(out, op, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _AllReduce.apply(grad.contiguous(), ctx.op, ctx.group), None, None


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, src: int, group: Any) -> Tensor:
        ctx.src, ctx.group = src, group
        out = tensor.clone()
        over.broadcast(out, src, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        total = _Reduce.apply(grad.contiguous(), ctx.src, ReduceOp.SUM, ctx.group)
        return total if get_rank(ctx.group) == _root(ctx.group, ctx.src) else ts.zeros_like(total), None, None


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dst: int, op: Any, group: Any) -> Tensor:
        ctx.dst, ctx.group = dst, group
        out = tensor.clone()
        over.reduce(out, dst, op, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Broadcast.apply(grad.contiguous(), ctx.dst, ctx.group), None, None, None


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Any:
        ctx.group = group
        made = [ts.empty_like(tensor) for _ in range(get_world_size(group))]
        over.all_gather(made, tensor.contiguous(), group)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        out = ts.empty_like(grads[get_rank(ctx.group)])
        over.reduce_scatter(out, [g.contiguous() for g in grads], ReduceOp.SUM, ctx.group)
        return out, None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, *tensors: Tensor) -> Tensor:
        ctx.group, ctx.sizes = group, [t.shape for t in tensors]
        out = ts.empty_like(tensors[get_rank(group)])
        over.reduce_scatter(out, [t.contiguous() for t in tensors], op, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        made = [grad.new_empty(shape) for shape in ctx.sizes]
        over.all_gather(made, grad.contiguous(), ctx.group)
        return (None, None, *made)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, shapes: Any, *tensors: Tensor) -> Any:
        ctx.group, ctx.shapes = group, [t.shape for t in tensors]
        made = [tensors[0].new_empty(shape) for shape in shapes]
        over.all_to_all(made, [t.contiguous() for t in tensors], group)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return (None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *grads))


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Combined over all ranks; the gradient is combined likewise.

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> x = ts.ones(2, requires_grad=True)
    >>> all_reduce(x).sum().backward()
    >>> x.grad
    tensor([1., 1.])
    >>> ts.distributed.destroy_process_group()
    """
    out: Tensor = _AllReduce.apply(tensor, op, group)
    return out


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of rank ``src``; gradients of all ranks are added up there."""
    out: Tensor = _Broadcast.apply(tensor, src, group)
    return out


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Combined on rank ``dst``, whose gradient all get."""
    out: Tensor = _Reduce.apply(tensor, dst, op, group)
    return out


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """Each rank's tensor; the gradient of one is the sum over the ranks that have it."""
    out: tuple[Tensor, ...] = _AllGather.apply(tensor, group)
    return out


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """Each rank's tensor on rank ``dst``, zeros elsewhere."""
    made: tuple[Tensor, ...] = _AllGather.apply(tensor, group)
    return made if get_rank(group) == _root(group, dst) else tuple(t * 0 for t in made)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """This rank's of the tensors of rank ``src``."""
    mine = get_rank(group) == _root(group, src)
    given = tuple(tensors) if mine else tuple(t * 0 for t in tensors)
    return reduce_scatter(given[0], given, ReduceOp.SUM, group)


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """This rank's of the tensors combined over all ranks; ``output`` has its shape, and is not written to."""
    out: Tensor = _ReduceScatter.apply(op, group, *input_list)
    return out


def _all_gather_base(output_tensor: Tensor, input_tensor: Tensor, group: Any = None) -> Tensor:
    """Each rank's tensor, one after another, of ``output_tensor``'s shape, which is not written to."""
    return ts.cat([t.reshape(-1) for t in all_gather(input_tensor, group)]).view(output_tensor.shape)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """From each rank a tensor to each; ``output_tensor_list`` says the sizes of those that come."""
    out: tuple[Tensor, ...] = _AllToAll.apply(group, [t.shape for t in output_tensor_list], *input_tensor_list)
    return out


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """Rows to each rank and from each."""
    ranks = get_world_size(group)
    given = input.split(over._splits("all_to_all_single", input, input_split_sizes, ranks, "input"))
    sizes = over._splits("all_to_all_single", output, output_split_sizes, ranks, "output")
    return ts.cat(all_to_all(output.detach().split(sizes), given, group))
