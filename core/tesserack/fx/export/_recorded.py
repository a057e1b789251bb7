"""Numbers that a traced program made of its sizes, step by step, as expressions of the sizes that vary.

A trace keeps how Python made each number of sizes, by the number: what an operator is given is looked for there first.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tesserack.fx.export._expression import UNARY, Expression, number, operation

__all__ = ["LOST", "Trees", "alike", "bound_trees", "readings", "recorded", "taken"]

# ``("size", n)`` for a size that was n, ``(sign, a, b)`` or ``(function, a)`` of others and plain numbers.
Tree: TypeAlias = "tuple[Any, ...] | int | float"
Trees: TypeAlias = "Mapping[tuple[bool, Any], Sequence[Tree]]"  # by the number, and whether it was a float

LOST = (False, None)  # what Python made a plain number of, by int(): what is made of that is not seen
_MOST = 16  # readings of one tree, whose sizes may each be one of several that were the same number


def recorded(values: Sequence[Any], trees: Trees, bases: Sequence[Expression]) -> Expression | None:
    """What the program made the first of these numbers by, if that gives the others in their traces. Where two ways do,
    the expression is not ``sure``."""
    values = tuple(values)
    found = {
        e.text: e
        for tree in trees.get((isinstance(values[0], float), values[0]), ())
        for e in readings(tree, bases, len(values))
        if e.values == values and isinstance(e.values[0], float) == isinstance(values[0], float)
    }
    for e in found.values():
        e.sure = len(found) == 1
        return e
    return None


def alike(values: Sequence[Any], traces: Sequence[Trees], bases: Sequence[Expression]) -> list[Expression]:
    """What the program made these numbers by in the same steps in every trace, which tells each size that it took by
    what it was in all of them. The last ones first: others are what those are made of."""
    found: dict[str, Expression] = {}
    keys = [(isinstance(v, float), v) for v in values]
    for tree in reversed(traces[0].get(keys[0], ())) if len(traces) == len(keys) else ():
        if isinstance(tree, tuple) and (made := _read_alike(tree, keys, traces, bases)) is not None:
            made.sure = True
            found.setdefault(made.text, made)
    return [*found.values()]


def _read_alike(
    tree: Tree, keys: Sequence[tuple[bool, Any]], traces: Sequence[Trees], bases: Sequence[Expression]
) -> Expression | None:
    steps = _steps(tree)
    pairs = zip(keys, traces, strict=True)
    rows = [[taken(t) for t in made.get(key, ()) if _steps(t) == steps] for key, made in pairs]
    if not all(rows):
        return None
    told = [k for k, row in enumerate(rows) if len(row) == 1]  # where others were not the same number
    if len(told) < 2:
        return None
    leaves: list[Expression] = []
    for column in zip(*(rows[k][0] for k in told), strict=True):
        fits = (base for base in bases if all(base.values[k] == n for k, n in zip(told, column, strict=True)))
        leaf = next(fits, number(column[0], len(keys)) if len({*column}) == 1 else None)
        if leaf is None:
            return None
        leaves.append(leaf)
    try:
        made = _of(tree, iter(leaves), len(keys))
    except (ZeroDivisionError, OverflowError, ValueError):
        return None
    return made if made.values == tuple(v for _, v in keys) else None


@functools.lru_cache(4096)
def _steps(tree: Any) -> Any:
    """The tree without what its sizes were."""
    if not isinstance(tree, tuple):
        return tree
    return "size" if tree[0] == "size" else (tree[0], *map(_steps, tree[1:]))


def taken(tree: Any) -> list[Any]:
    """What its sizes were, in order."""
    if not isinstance(tree, tuple):
        return []
    return [tree[1]] if tree[0] == "size" else [n for part in tree[1:] for n in taken(part)]


def _of(tree: Any, leaves: Iterator[Expression], count: int) -> Expression:
    if not isinstance(tree, tuple):
        return number(tree, count)
    return next(leaves) if tree[0] == "size" else _combined(tree[0], [_of(part, leaves, count) for part in tree[1:]])


def bound_trees(trees: Iterable[Tree], bases: Sequence[Expression], count: int, most: int = 24) -> list[Expression]:
    """Numbers that the program made, for what is made of them in turn."""
    known = {e.values for e in bases}
    every = (e for tree in trees for e in readings(tree, bases, count))
    found: dict[tuple[Any, ...], Expression] = {}
    for e in every:
        if all(isinstance(v, int) for v in e.values) and e.values not in known and len({*e.values}) > 1:
            found.setdefault(e.values, e)
        if len(found) == most:
            break
    return [*found.values()]


def readings(tree: Any, bases: Sequence[Expression], count: int) -> Iterator[Expression]:
    """The tree with each of its sizes one of those that vary and were that number, or a fixed one."""
    if not isinstance(tree, tuple):
        yield number(tree, count)
    elif tree[0] == "size":
        yield from (base for base in bases if base.values[0] == tree[1])
        yield number(tree[1], count)
    else:
        parts = itertools.product(*([*readings(part, bases, count)] for part in tree[1:]))
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
    return Expression((sign, base), [UNARY[sign](v) for v in base.values], f"{sign}({base.text})", atom=True)
