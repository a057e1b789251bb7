"""Arithmetic of sizes under PyTorch's ``sym_`` names, and control flow by tensors: ``cond``, ``while_loop``.

Sizes are plain numbers here, so these are Python's own operations, with its errors.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

from tesserack import Tensor

__all__ = [
    "cond",
    "sym_float",
    "sym_int",
    "sym_ite",
    "sym_max",
    "sym_min",
    "sym_not",
    "sym_sqrt",
    "sym_sum",
    "while_loop",
]


def sym_int(a: Any) -> int:
    """A number rounded towards zero."""
    return int(a)


def sym_float(a: Any) -> float:
    """A number as a float."""
    return float(a)


def sym_not(a: Any) -> bool:
    """The negation of a truth value."""
    return not a


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """``t`` if ``b`` holds, else ``f``, which must be of the same type."""
    if type(t) is not type(f):
        raise TypeError(f"sym_ite: expected two values of one type, got {type(t).__name__} and {type(f).__name__}")
    return t if b else f


def _joined(a: Any, b: Any, chosen: Any) -> Any:
    return float(chosen) if isinstance(a, float) or isinstance(b, float) else chosen


def sym_max(a: Any, b: Any) -> Any:
    """The larger number, a float if either is one.

    >>> sym_max(2, 1.0)
    2.0
    """
    return _joined(a, b, builtins.max(a, b))


def sym_min(a: Any, b: Any) -> Any:
    """The smaller number, a float if either is one."""
    return _joined(a, b, builtins.min(a, b))


def sym_sum(args: Sequence[Any]) -> Any:
    """The sum of numbers."""
    return builtins.sum(args)


def sym_sqrt(a: Any) -> float:
    """The square root of a number."""
    return math.sqrt(a)


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """``true_fn(*operands)`` if ``pred``, a truth value or a tensor of one element, holds, else ``false_fn``'s result.

    Only the branch taken runs; gradients flow through it. Waits for a tensor's device.

    >>> import tesserack as ts
    >>> ts.cond(ts.tensor(True), lambda x: x + 1, lambda x: x - 1, (ts.ones(2),))
    tensor([2., 2.])
    """
    if not isinstance(pred, (bool, Tensor)):
        raise RuntimeError(f"cond: expected pred to be bool or tensor, but got {pred!r}")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"cond: expected pred to be a bool or single-element tensor, but got {tuple(pred.shape)}")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("cond: expected two callables as branches")
    return true_fn(*operands) if bool(pred) else false_fn(*operands)


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """Replace the values by ``body_fn(*values)`` as long as ``cond_fn(*values)`` holds, and return them.

    >>> import tesserack as ts
    >>> ts.while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * 2), (ts.tensor(0), ts.ones(1)))
    (tensor(3), tensor([8.]))
    """
    values = tuple(carried_inputs)
    while bool(cond_fn(*values)):
        given = body_fn(*values)
        found = (given,) if isinstance(given, Tensor) else tuple(given)
        if len(found) != len(values):
            raise RuntimeError(f"while_loop: expected {len(values)} values from body_fn, got {len(found)}")
        values = found
    return values
