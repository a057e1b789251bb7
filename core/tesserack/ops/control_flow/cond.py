"""``cond``: one of two functions, by a tensor."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.aten.higher_order import HigherOrderOperator
from tesserack.autograd import Function
from tesserack.autograd._whole import whole
from tesserack.ops.control_flow._checks import check_callable, check_same, outline
from tesserack.ops.control_flow._flat import Flat, is_tensor
from tesserack.ops.control_flow._trial import outlines_of
from tesserack.utils._pytree import tree_flatten

__all__ = ["CondOp", "cond", "cond_op"]


class CondOp(HigherOrderOperator):
    """``cond_op(pred, true_fn, false_fn, operands)``, of flat operands; the branches return lists of leaves."""

    def __init__(self) -> None:
        super().__init__("cond")

    def compute(self, pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
        """The branch that ``pred`` tells."""
        return true_fn(*operands) if bool(pred) else false_fn(*operands)


cond_op = CondOp()


class _Operands(Function):
    """What a branch is given: where one of them has a gradient all have, zeros for those that it does not read."""

    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> Any:
        return tuple(x.view_as(x) for x in operands)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads


def _together(operands: list[Any]) -> list[Any]:
    """Operands that share a step of the backward pass."""
    places = [k for k, x in enumerate(operands) if is_tensor(x) and x.requires_grad]
    if len(places) < 2 or not ts.is_grad_enabled() or any(not issubclass(type(x), Tensor) for x in operands):
        return operands
    found = dict(zip(places, _Operands.apply(*(operands[k] for k in places)), strict=True))
    return [found.get(k, x) for k, x in enumerate(operands)]


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """``true_fn(*operands)`` if ``pred``, a number or a tensor of one element, holds, else ``false_fn(*operands)``.

    Only the branch taken runs; gradients flow through it, and are zero for operands that it does not read. Waits for a
    tensor's device. Traced, it is a node that holds both branches; in an exported program also where ``pred`` compares
    a size that varies, as ``x.shape[0] > 4``. Where ``pred`` is a tensor, operands are tensors or
    nested structures of tensors, and the branches return the same structure, shapes and dtypes, else ``RuntimeError``;
    the other branch is tried for that on outlines, once for each pair of functions and kind of operands.

    >>> import tesserack as ts
    >>> ts.cond(ts.tensor(True), lambda x: x + 1, lambda x: x - 1, (ts.ones(2),))
    tensor([2., 2.])
    """
    if isinstance(pred, bool) and (watch := sys.modules.get("tesserack.fx.export._watch")):
        pred = watch.predicate(pred, sys._getframe(1))
    if isinstance(pred, (bool, int, float)):
        return true_fn(*operands) if pred else false_fn(*operands)
    return _cond(pred, true_fn, false_fn, operands)


@partial(whole, computes=True)
def _cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any]) -> Any:
    leaves, spec = _validated(pred, true_fn, false_fn, operands)
    branches = Flat(true_fn, spec, "true_fn"), Flat(false_fn, spec, "false_fn")
    if cond_op.taken_over():
        found = cond_op(pred, *branches, tuple(leaves))
        taken, other = branches
        if None not in (taken.out_spec, other.out_spec) and taken.out_spec != other.out_spec:
            raise _unlike(taken, other)
        return (taken if taken.out_spec is not None else other).restored(found)
    found = cond_op(pred, *branches, tuple(_together(leaves)))
    taken, other = branches if branches[0].out_spec is not None else branches[::-1]
    _compare(taken, other, leaves, found)
    return taken.restored(found)


def _validated(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> tuple[list[Any], Any]:
    if not is_tensor(pred):
        raise RuntimeError(f"cond: expected pred to be bool or tensor, but got {pred!r}")
    if pred.numel() != 1:
        raise RuntimeError(f"cond: expected pred to be bool or single-element tensor, but got {tuple(pred.shape)}")
    check_callable("cond", true_fn=true_fn, false_fn=false_fn)
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(f"cond: expected operands to be a tuple, got {type(operands).__name__}")
    leaves, spec = tree_flatten(tuple(operands))
    for leaf in leaves:
        if not is_tensor(leaf):
            raise RuntimeError(
                "cond: expected operands to be a tuple of tensors, or of nested dicts, lists and tuples of them, got "
                f"{leaf!r} among them; let the branches close over it"
            )
    return leaves, spec


# --- branches that have to agree ------------------------------------------------------------------------------------


def _unlike(one: Flat, other: Flat) -> RuntimeError:
    return RuntimeError(
        f"cond: expected both branches to return the same structure, got {one.out_spec} from {one.__name__} and "
        f"{other.out_spec} from {other.__name__}"
    )


_agree: set[Any] = set()  # branches, by their code, that were found to agree, with outlines of operands
_MOST = 1024


def _compare(taken: Flat, other: Flat, leaves: list[Any], found: Sequence[Any]) -> None:
    codes = getattr(taken.fn, "__code__", None), getattr(other.fn, "__code__", None)
    key: Any = (*codes, repr(taken.spec), *map(outline, leaves)) if all(codes) else None
    if key is not None and key in _agree:
        return
    tried = outlines_of(other, leaves)
    if tried is not None:
        if taken.out_spec != other.out_spec:
            raise _unlike(taken, other)
        check_same("cond", found, tried, (taken.__name__, other.__name__))
    if key is not None:
        if len(_agree) >= _MOST:
            _agree.clear()
        _agree.add(key)
