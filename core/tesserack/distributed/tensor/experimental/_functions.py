"""Functions written for plain tensors, applied to the parts of DTensors; sharding rules of one's own."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tesserack.distributed.device_mesh import DeviceMesh
from tesserack.distributed.tensor._api import DTensor
from tesserack.distributed.tensor._call import RULES, Call, Strategy, rule
from tesserack.distributed.tensor._dispatch import forget_plans, implicit
from tesserack.distributed.tensor._spec import DTensorSpec
from tesserack.distributed.tensor.placement_types import Replicate
from tesserack.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["implicit_replication", "local_map", "register_sharding"]


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """Within it plain tensors beside DTensors are taken to be the same on every rank."""
    implicit.replicates += 1
    try:
        yield
    finally:
        implicit.replicates -= 1


def local_map(
    func: Callable[..., Any] | None = None,
    out_placements: Any = None,
    in_placements: Any = None,
    in_grad_placements: Any = None,
    device_mesh: DeviceMesh | None = None,
    *,
    redistribute_inputs: bool = False,
) -> Any:
    """A function of plain tensors as one of DTensors: it is given each rank's parts, and what it returns is this rank's
    part of what ``out_placements`` says. ``in_placements`` says how inputs must lie (None: any way, or no DTensor), or
    are brought to lie with ``redistribute_inputs``. Usable as a decorator.

    >>> import tesserack as ts
    >>> from tesserack.distributed.tensor import Shard, init_device_mesh, ones
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> double = local_map(lambda x: x * 2, out_placements=[Shard(0)])
    >>> double(ones(2, device_mesh=init_device_mesh("cpu", (1,)), placements=[Shard(0)])).to_local()
    tensor([2., 2.])
    >>> ts.distributed.destroy_process_group()
    """
    if func is None:
        return functools.partial(
            local_map, out_placements=out_placements, in_placements=in_placements,
            in_grad_placements=in_grad_placements, device_mesh=device_mesh, redistribute_inputs=redistribute_inputs,
        )  # fmt: skip

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        flat, tree = tree_flatten(args)
        mesh = device_mesh or next((x.device_mesh for x in flat if isinstance(x, DTensor)), None)
        if in_placements is not None and len(in_placements) != len(flat):
            raise AssertionError(
                f"in_placements length {len(in_placements)} does not match the number of input args {len(flat)}!"
            )
        parts = [
            _part(x, None if in_placements is None else in_placements[k],
                  None if in_grad_placements is None else in_grad_placements[k], redistribute_inputs, k)
            for k, x in enumerate(flat)
        ]  # fmt: skip
        out = func(*tree_unflatten(parts, tree), **kwargs)
        if not any(isinstance(x, DTensor) for x in flat):
            return out
        return _placed(out, out_placements, mesh)

    return mapped


def _part(x: Any, wanted: Any, grad: Any, redistribute: bool, number: int) -> Any:
    if not isinstance(x, DTensor):
        if wanted is not None and hasattr(x, "requires_grad"):
            raise AssertionError(f"Non-DTensor input placements should be None, got {wanted} for input {number}")
        return x
    if wanted is not None and x.placements != tuple(wanted):
        if not redistribute:
            raise ValueError(
                f"arg {number} in local_map has a mismatched placements: {x.placements} are given, but the function "
                f"asks for {tuple(wanted)}; redistribute_inputs=True brings it there"
            )
        x = x.redistribute(placements=wanted)
    return x.to_local(grad_placements=grad)


def _placed(out: Any, placements: Any, mesh: DeviceMesh | None) -> Any:
    flat, tree = tree_flatten(out)
    each = [placements] if len(flat) == 1 and not _is_several(placements) else list(placements)
    if len(each) != len(flat):
        raise AssertionError(
            f"local_map requires one PlacementType for each output value, got {len(each)} and {len(flat)}"
        )
    made = [x if p is None else DTensor.from_local(x, mesh, p) for x, p in zip(flat, each, strict=True)]
    return tree_unflatten(made, tree)


def _is_several(placements: Any) -> bool:
    return isinstance(placements, (list, tuple)) and any(p is None or isinstance(p, (list, tuple)) for p in placements)


def register_sharding(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the sharding rule of an operator (``torch.ops.aten.add.Tensor``, or several). The function is given
    the operator's arguments, with something that has ``shape``, ``ndim`` and ``dtype`` for each tensor, and returns the
    acceptable placements along a dim of a mesh: pairs of a list for the outputs and one for the arguments, with None
    for what is no tensor.

    A rule that there is for the operator stays, and that everything is replicated is always acceptable.
    """
    overloads: Sequence[Any] = op if isinstance(op, (list, tuple)) else [op]

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads:
            name = str(overload).partition(".")[2].removesuffix(".default")
            before = RULES.get(name) or RULES.get(name.partition(".")[0])
            rule(name)(_given_rule(function, before))
        forget_plans()
        return function

    return register


def _given_rule(function: Callable[..., Any], before: Any) -> Any:
    def given(call: Call, mesh_dim: int) -> Iterator[Strategy]:
        for outputs, inputs in function(*call.args, **call.kwargs):
            tensors = [p for a, p in zip(call.args, inputs, strict=False) if isinstance(a, (DTensorSpec, list, tuple))]
            flat = [p or Replicate() for each in tensors for p in (each if isinstance(each, (list, tuple)) else [each])]
            if len(flat) == len(call.specs):
                yield Strategy(tuple(p or Replicate() for p in outputs), tuple(flat))
        if before is not None:
            yield from before(call, mesh_dim)

    return given
