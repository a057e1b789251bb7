"""Numbers that a traced program made of its sizes, step by step, as expressions of the sizes that vary.

A trace keeps how Python made each number of sizes, by the number: what an operator is given is looked for there first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tesserack.fx.export._expression import WHOLE, Expression, number, operation

__all__ = ["LOST", "Trees", "bound_trees", "recorded"]

# ``("size", n)`` for a size that was n, ``(sign, a, b)`` or ``(function, a)`` of others and plain numbers.
Tree: TypeAlias = "tuple[Any, ...] | int | float"
Trees: TypeAlias = "Mapping[tuple[bool, Any], Sequence[Tree]]"  # by the number, and whether it was a float

LOST = (False, None)  # what Python made a plain number of, by int(): what is made of that is not seen
_MOST = 16  # readings of one tree, whose sizes may each be one of several that were the same number
_UNARY: dict[str, Callable[[Any], Any]] = {**WHOLE, "abs": abs}


def recorded(values: Sequence[Any], trees: Trees, bases: Sequence[Expression]) -> Expression | None:
    """What the program made the first of these numbers by, if that gives the others in their traces. Where two ways do,
    the expression is not ``sure``."""
    values = tuple(values)
    found = {
        e.text: e
        for tree in trees.get((isinstance(values[0], float), values[0]), ())
        for e in _readings(tree, bases, len(values))
        if e.values == values and isinstance(e.values[0], float) == isinstance(values[0], float)
    }
    for e in found.values():
        e.sure = len(found) == 1
        return e
    return None


def bound_trees(trees: Iterable[Tree], bases: Sequence[Expression], count: int, most: int = 24) -> list[Expression]:
    """Numbers that the program made, for what is made of them in turn."""
    known = {e.values for e in bases}
    every = (e for tree in trees for e in _readings(tree, bases, count))
    found: dict[tuple[Any, ...], Expression] = {}
    for e in every:
        if isinstance(e.values[0], int) and e.values not in known and len({*e.values}) > 1:
            found.setdefault(e.values, e)
        if len(found) == most:
            break
    return [*found.values()]


def _readings(tree: Any, bases: Sequence[Expression], count: int) -> Iterator[Expression]:
    """The tree with each of its sizes one of those that vary and were that number, or a fixed one."""
    if not isinstance(tree, tuple):
        yield number(tree, count)
    elif tree[0] == "size":
        yield from (base for base in bases if base.values[0] == tree[1])
        yield number(tree[1], count)
    else:
        parts = itertools.product(*([*_readings(part, bases, count)] for part in tree[1:]))
        for part in itertools.islice(parts, _MOST):
            try:
                yield _combined(tree[0], part)
            except (ZeroDivisionError, OverflowError, ValueError):
                continue


def _combined(sign: str, parts: Sequence[Expression]) -> Expression:
    if len(parts) == 2:
        return operation(sign, *parts)
    (base,) = parts
    if sign == "neg":
        return operation("-", number(0, len(base.values)), base)
    return Expression((sign, base), [_UNARY[sign](v) for v in base.values], f"{sign}({base.text})", atom=True)
