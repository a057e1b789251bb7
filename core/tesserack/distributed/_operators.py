"""Collectives as operators, by PyTorch's names: ``torch.ops._c10d_functional.all_reduce`` and its like.

Calls go through the dispatcher: modes, profilers and tracers see them, and shapes are known without a group of many.
They return new tensors and communicate, so none may be left out or done twice: passes over graphs keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _collectives as over
from tesserack.distributed._reduce_op import RedOpType, ReduceOp
from tesserack.library import CustomOp, custom_op

__all__ = ["OPERATORS", "reduction"]

SPACE = "_c10d_functional"
OPERATORS: dict[str, CustomOp] = {}


def reduction(name: Any) -> Any:
    """A reduction by the name that schemas give it: ``"sum"``, ``"avg"``, ``"max"``."""
    return ReduceOp(RedOpType[name.upper()]) if isinstance(name, str) else name


def _operator(schema: str, fake: Callable[..., Tensor]) -> Callable[[Callable[..., Tensor]], CustomOp]:
    """Makes a function an operator of this schema, whose results have the shapes that ``fake`` says."""

    def make(function: Callable[..., Tensor]) -> CustomOp:
        made: CustomOp = custom_op(f"{SPACE}::{function.__name__}", mutates_args=(), schema=schema)(function)
        made.register_fake(fake)
        OPERATORS[function.__name__] = made
        return made

    return make


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=ts.contiguous_format)


def _rows(tensor: Tensor, rows: int) -> Tensor:
    return tensor.new_empty((rows, *tensor.shape[1:]))


def _alike(input: Tensor, *others: Any) -> Tensor:
    return ts.empty_like(input, memory_format=ts.contiguous_format)


@_operator("(Tensor input, str reduce_op, str group_name) -> Tensor", _alike)
def all_reduce(input: Tensor, reduce_op: str, group_name: str) -> Tensor:
    """Combined over all ranks."""
    out = _copied(input)
    over.all_reduce(out, reduction(reduce_op), group_name)
    return out


@_operator("(Tensor input, int src, str group_name) -> Tensor", _alike)
def broadcast(input: Tensor, src: int, group_name: str) -> Tensor:
    """That of rank ``src`` of the group."""
    out = _copied(input)
    over.broadcast(out, group=group_name, group_src=src)
    return out


@_operator(
    "(Tensor input, int group_size, str group_name) -> Tensor",
    lambda input, group_size, group_name: _rows(input, input.shape[0] * group_size),
)
def all_gather_into_tensor(input: Tensor, group_size: int, group_name: str) -> Tensor:
    """Each rank's, side by side along dim 0."""
    out = _rows(input, input.shape[0] * group_size)
    over.all_gather_into_tensor(out, input.detach(), group_name)
    return out


@_operator(
    "(Tensor input, str reduce_op, int group_size, str group_name) -> Tensor",
    lambda input, reduce_op, group_size, group_name: _rows(input, input.shape[0] // group_size),
)
def reduce_scatter_tensor(input: Tensor, reduce_op: str, group_size: int, group_name: str) -> Tensor:
    """This rank's part, along dim 0, of what is combined over all ranks."""
    if input.shape[0] % group_size:
        raise ValueError(
            f"reduce_scatter_tensor: expected dim 0 to divide by {group_size} ranks, got {list(input.shape)}"
        )
    out = _rows(input, input.shape[0] // group_size)
    over.reduce_scatter_tensor(out, input.detach(), reduction(reduce_op), group_name)
    return out


@_operator(
    "(Tensor input, int[] output_split_sizes, int[] input_split_sizes, str group_name) -> Tensor",
    lambda input, output_split_sizes, input_split_sizes, group_name: _rows(
        input, sum(output_split_sizes) if output_split_sizes else input.shape[0]
    ),
)
def all_to_all_single(
    input: Tensor, output_split_sizes: Sequence[int], input_split_sizes: Sequence[int], group_name: str
) -> Tensor:
    """Rows to each rank and from each; no sizes: equal parts."""
    out = _rows(input, sum(output_split_sizes) if output_split_sizes else input.shape[0])
    over.all_to_all_single(out, input.detach(), [*output_split_sizes], [*input_split_sizes], group_name)
    return out


@_operator("(Tensor tensor) -> Tensor", lambda tensor: _alike(tensor))
def wait_tensor(tensor: Tensor) -> Tensor:
    """A tensor that is there already, since these operators wait; a copy, as results of operators are."""
    return tensor.detach().clone()
