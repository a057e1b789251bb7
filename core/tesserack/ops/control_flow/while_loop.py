"""``while_loop``: a function again and again, as long as another one says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tesserack as ts
from tesserack.aten.higher_order import HigherOrderOperator
from tesserack.autograd._whole import whole
from tesserack.ops.control_flow._checks import check_callable, check_carry
from tesserack.ops.control_flow._flat import Flat, is_tensor
from tesserack.ops.control_flow._trial import outlines_of
from tesserack.utils._pytree import tree_flatten

__all__ = ["WhileLoopOp", "while_loop", "while_loop_op"]


class WhileLoopOp(HigherOrderOperator):
    """``while_loop_op(cond_fn, body_fn, carried_inputs, additional_inputs)``, of flat inputs; further ones do not
    change, and both functions are given them after the carried ones."""

    def __init__(self) -> None:
        super().__init__("while_loop")

    def compute(self, cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any = ()) -> Any:
        """The loop. Inputs that no step replaced come back as copies."""
        values, further = list(carried_inputs), tuple(additional_inputs)
        if not _holds(cond_fn(*values, *further)):
            return [x.clone() if is_tensor(x) else x for x in values]
        while True:
            given = body_fn(*values, *further)
            found = [given] if is_tensor(given) else list(given)
            check_carry("while_loop", values, found, "body_fn")
            values = found
            if not _holds(cond_fn(*values, *further)):
                return values


while_loop_op = WhileLoopOp()


def _holds(answer: Any) -> bool:
    """The truth of what ``cond_fn`` returned."""
    answer = answer[0] if isinstance(answer, (tuple, list)) and len(answer) == 1 else answer  # as graphs return it
    if isinstance(answer, bool) or (is_tensor(answer) and not answer.ndim and answer.dtype is ts.bool):
        return bool(answer)
    if is_tensor(answer):
        shown = f"{answer.dtype} of shape {tuple(answer.shape)}; compare it, as in n < 3, and reduce it, as by any()"
    else:
        shown = f"{type(answer).__name__}"
    raise RuntimeError(f"while_loop: cond_fn must return a boolean scalar tensor or a boolean but got {shown}")


@partial(whole, computes=True)
def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]) -> Any:
    """Replace the values by ``body_fn(*values)`` as long as ``cond_fn(*values)`` holds, and return them.

    Values are tensors and whole numbers, or nested structures of them; a step keeps their structure, shapes and dtypes,
    else ``RuntimeError``. ``cond_fn`` returns a bool or a tensor of dtype bool without dims, for which it waits.
    Gradients flow through the steps that ran. Traced, it is one node that holds both functions.

    >>> import tesserack as ts
    >>> ts.while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * 2), (ts.tensor(0), ts.ones(1)))
    (tensor(3), tensor([8.]))
    """
    check_callable("while_loop", cond_fn=cond_fn, body_fn=body_fn)
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"while_loop: expected carried_inputs to be a tuple, got {type(carried_inputs).__name__}")
    leaves, spec = tree_flatten(tuple(carried_inputs))
    for leaf in leaves:
        if not is_tensor(leaf) and not isinstance(leaf, int):
            raise RuntimeError(
                "while_loop: expected carried_inputs to be a tuple of tensors or whole numbers, or of nested dicts, "
                f"lists and tuples of them, got {leaf!r} among them"
            )
    body = _Body(body_fn, spec, "body_fn")
    found = while_loop_op(Flat(cond_fn, spec, "cond_fn"), body, tuple(leaves), ())
    if body.out_spec is None and outlines_of(body, leaves) is None:
        body.out_spec = spec  # no step ran, and none can be tried
    return body.restored(found)


class _Body(Flat):
    """A step, whose results are held against the structure of what it was given."""

    def __call__(self, *leaves: Any) -> list[Any]:
        found = super().__call__(*leaves)
        assert self.out_spec is not None
        alone = self.spec.children_specs[0] if len(self.spec.children_specs) == 1 else None
        in_row = self.out_spec.type in (tuple, list) and self.out_spec.children_specs == self.spec.children_specs
        if in_row or self.out_spec == alone:
            return found
        if self.out_spec.num_leaves != self.spec.num_leaves:
            raise RuntimeError(
                f"while_loop: expected {self.spec.num_leaves} values from body_fn, got {self.out_spec.num_leaves}"
            )
        raise RuntimeError(
            f"while_loop: expected body_fn to return the structure it was given, {self.spec}, got {self.out_spec}"
        )
