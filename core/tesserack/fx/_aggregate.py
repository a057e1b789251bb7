"""Values inside nested arguments, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack.fx.immutable_collections import immutable_dict, immutable_list

__all__ = ["map_aggregate"]


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """``fn`` of every value in nested tuples, lists, dicts and slices, in the same structure, which does not change.

    >>> map_aggregate((1, [2, slice(3, None)]), lambda v: v and -v)
    (-1, [-2, slice(-3, None, None)])
    """
    if isinstance(a, tuple):
        mapped = tuple(map_aggregate(item, fn) for item in a)
        return type(a)(*mapped) if hasattr(a, "_fields") else mapped
    if isinstance(a, list):
        return immutable_list([map_aggregate(item, fn) for item in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn) for part in (a.start, a.stop, a.step)))
    return fn(a)
