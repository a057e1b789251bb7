"""``scan``: a function along a dim, each step given what the last one handed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack.aten.higher_order import HigherOrderOperator
from tesserack.ops.control_flow._checks import check_callable, check_carry
from tesserack.ops.control_flow._flat import Flat, is_tensor
from tesserack.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = ["ScanOp", "scan", "scan_op", "sliced_first", "stacked"]


class ScanOp(HigherOrderOperator):
    """``scan_op(combine_fn, init, xs, additional_inputs)`` along the first dim, of flat lists; ``combine_fn`` is given
    what is carried, one slice of each of ``xs`` and the further inputs, and returns as many values to carry, then
    results."""

    def __init__(self) -> None:
        super().__init__("scan")

    def compute(self, combine_fn: Any, init: Sequence[Any], xs: Sequence[Any], additional_inputs: Any = ()) -> Any:
        """The loop: what is carried in the end, then results, stacked."""
        carry, rows = list(init), []
        for slices in zip(*(x.unbind(0) for x in xs), strict=True):
            found = list(combine_fn(*carry, *slices, *additional_inputs))
            step, out = found[: len(carry)], found[len(carry) :]
            check_carry("scan", carry, step, "combine_fn's first value")
            carry = step
            rows.append(out)
        return [*carry, *stacked("scan", rows)]


scan_op = ScanOp()


def stacked(op: str, rows: list[list[Any]]) -> list[Any]:
    """Results of all steps, each as one tensor; None where every step gave None."""
    found: list[Any] = []
    for place, column in enumerate(zip(*rows, strict=True)):
        if all(x is None for x in column):
            found.append(None)
            continue
        odd = next((x for x in column if not is_tensor(x)), None)
        if odd is not None or any(x is None for x in column):
            raise RuntimeError(
                f"{op}: expected tensors as results, got {type(odd).__name__} as value {place} of a step"
            )
        first = column[0]
        unlike = next((x for x in column if x.shape != first.shape or x.dtype is not first.dtype), None)
        if unlike is not None:
            raise RuntimeError(
                f"{op}: expected every step to give value {place} with the same shape and dtype, got {first.dtype} of "
                f"shape {tuple(first.shape)} and {unlike.dtype} of shape {tuple(unlike.shape)}"
            )
        found.append(ts.stack(list(column)))
    return found


def sliced_first(op: str, xs: Any, dim: int) -> tuple[list[Any], TreeSpec, int]:
    """The leaves of ``xs`` with ``dim`` moved to the front, their structure, and the dim counted from the front."""
    leaves, spec = tree_flatten(xs)
    for x in leaves:
        if not is_tensor(x):
            raise RuntimeError(f"{op}: All xs leaves must be a Tensor but got {x!r}")
    rank = leaves[0].ndim
    if not -rank <= dim < rank:
        raise IndexError(f"{op}: expected a dim in [{-rank}, {rank}), got {dim} for xs of {rank} dims")
    place = dim % rank
    for x in leaves:
        if x.ndim <= place or not x.shape[place]:
            raise RuntimeError(
                f"{op}: All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0; got shape "
                f"{tuple(x.shape)} for dim {place}"
            )
        if x.shape[place] != leaves[0].shape[place]:
            raise RuntimeError(
                f"{op}: expected all xs to be of one size in dim {place}, got {leaves[0].shape[place]} and "
                f"{x.shape[place]}"
            )
    return [x.movedim(place, 0) if place else x for x in leaves], spec, place


def scan(combine_fn: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """Go along ``dim`` of ``xs``: ``carry, y = combine_fn(carry, x)`` for each slice, beginning with ``init``.

    Returns what is carried in the end and all ``y``, stacked along ``dim``, or along the first dim where they have
    fewer. ``init``, ``xs`` and ``y`` are tensors or nested structures of tensors; a step keeps structure, shapes and
    dtypes of what is carried, else ``RuntimeError``. ``reverse`` begins with the last slice. Differentiable.

    >>> import tesserack as ts
    >>> from tesserack._higher_order_ops import scan
    >>> scan(lambda total, x: (total + x, total * x), ts.tensor(0), ts.tensor([1, 2, 3]))
    (tensor(6), tensor([0, 2, 9]))
    """
    check_callable("scan", combine_fn=combine_fn)
    if not tree_flatten(xs)[0]:
        return init, []
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise RuntimeError(f"scan: Dim must be an int, but got {type(dim).__name__}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"scan: Reverse must be a bool, but got {type(reverse).__name__}")
    carried, carry_spec = tree_flatten(init)
    if not carried:
        raise RuntimeError("scan: scan() operator requires init leaves")
    for x in carried:
        if not is_tensor(x):
            raise RuntimeError(f"scan: All init leaves must be a Tensor but got {x!r}")
    slices, spec, dim = sliced_first("scan", xs, dim)
    if reverse:
        slices = [x.flip(0) for x in slices]
    step = _Step(combine_fn, carry_spec, spec)
    found = list(scan_op(step, carried, slices, ()))
    count = carry_spec.num_leaves
    results = [_placed(x, dim, reverse) for x in found[count:]]
    assert step.out_spec is not None
    return tree_unflatten(found[:count], carry_spec), tree_unflatten(results, step.out_spec)


def _placed(x: Any, dim: int, reverse: bool) -> Any:
    if x is None:
        return None
    x = x.flip(0) if reverse else x
    return x.movedim(0, dim) if 0 < dim < x.ndim else x


class _Step(Flat):
    """A step: ``fn(carry, x)``, which returns a pair; ``out_spec`` is the structure of the second of it."""

    def __init__(self, fn: Callable[..., Any], carry: TreeSpec, xs: TreeSpec) -> None:
        super().__init__(fn, xs, "combine_fn")
        self.carry = carry

    def __call__(self, *leaves: Any) -> list[Any]:
        count = self.carry.num_leaves
        carry = tree_unflatten(list(leaves[:count]), self.carry)
        found = self.fn(carry, tree_unflatten(list(leaves[count : count + self.spec.num_leaves]), self.spec))
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise RuntimeError(
                f"scan: expected combine_fn to return a pair, what is carried and a result, got {type(found).__name__}"
            )
        carried, spec = tree_flatten(found[0])
        if spec != self.carry:
            raise RuntimeError(f"scan: expected combine_fn to carry the structure of init, {self.carry}, got {spec}")
        results, self.out_spec = tree_flatten(found[1])
        return [*carried, *results]
