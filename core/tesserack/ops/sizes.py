"""Arithmetic of sizes under PyTorch's ``sym_`` names.

Sizes are plain numbers here, so these are Python's own operations, with its errors.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

__all__ = [
    "sym_float",
    "sym_int",
    "sym_ite",
    "sym_max",
    "sym_min",
    "sym_not",
    "sym_sqrt",
    "sym_sum",
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
