"""``rearrange``: dims split, joined and moved as a pattern of names says."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["rearrange"]

Group = list[str]

_DIMS = ["...", "..."]  # the ellipsis outside of parentheses, which stands for dims and not for one


def _groups(side: str, pattern: str) -> list[Group]:
    """The names of one side, each dim a list: of one, of several in parentheses, or of none for 1 and ``()``."""
    found: list[Group] = []
    inside: Group | None = None
    for token in re.findall(r"\(|\)|\.\.\.|\w+|\S", side):
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside is not None:
            found.append(inside)
            inside = None
        elif token == "..." or token == "1" or token.isidentifier():
            names = [] if token == "1" else [token]
            if inside is None:
                found.append(_DIMS if token == "..." else names)
            else:
                inside += names
        else:
            raise ValueError(f"rearrange: unexpected {token!r} in pattern {pattern!r}")
    if inside is not None:
        raise ValueError(f"rearrange: parentheses of pattern {pattern!r} do not close")
    return found


def _parsed(pattern: str) -> tuple[list[Group], list[Group]]:
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"rearrange: expected a pattern 'names -> names', got {pattern!r}")
    left, right = _groups(sides[0], pattern), _groups(sides[1], pattern)
    names = [[name for group in side for name in (group[:1] if group is _DIMS else group)] for side in (left, right)]
    for listed in names:
        if len(set(listed)) < len(listed):
            raise ValueError(f"rearrange: a name stands twice on one side of {pattern!r}")
    if set(names[0]) != set(names[1]):
        raise ValueError(f"rearrange: expected the same names on both sides of {pattern!r}")
    if _DIMS not in left and "..." in names[0]:
        raise ValueError(f"rearrange: an ellipsis inside parentheses on the left of {pattern!r}")
    return left, right


def _with_ellipsis(groups: list[Group], extra: list[str]) -> list[Group]:
    """Names in the place of the ellipsis."""
    if _DIMS in groups:
        at = groups.index(_DIMS)
        return [*groups[:at], *([name] for name in extra), *groups[at + 1 :]]
    return [[n for name in group for n in (extra if name == "..." else [name])] for group in groups]


def _sizes(shape: Sequence[int], groups: list[Group], known: dict[str, int], pattern: str) -> dict[str, int]:
    """The size of every name, of which each group may leave one to be found."""
    sizes = dict(known)
    for n, group in zip(shape, groups, strict=True):
        unknown = [name for name in group if name not in sizes]
        given = math.prod(sizes[name] for name in group if name in sizes)
        if len(unknown) > 1:
            raise ValueError(f"rearrange: expected sizes for all but one of {group} in {pattern!r}")
        if (unknown and (given == 0 or n % given)) or (not unknown and given != n):
            raise ValueError(f"rearrange: a dim of size {n} cannot be {group} of sizes {sizes} in {pattern!r}")
        for name in unknown:
            sizes[name] = n // given
    return sizes


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """The dims of a tensor split, moved and joined: ``"b c (h s) -> b (c s) h"``.

    Names in parentheses are one dim, the last of them running fastest; all but one of a split dim need a size in
    ``axes_lengths``. ``...`` stands for any dims, 1 and ``()`` for a dim of one element. A list of tensors is stacked
    first. ``ValueError`` for a pattern that does not fit.

    >>> import tesserack as ts
    >>> ts.func.rearrange(ts.arange(6), "(a b) -> b a", a=2).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    x: Any = tensor if isinstance(tensor, Tensor) else ts.stack(list(tensor))
    left, right = _parsed(pattern)
    extra_count = x.dim() - (len(left) - 1)
    if _DIMS in left:
        if extra_count < 0:
            raise ValueError(f"rearrange: expected at least {len(left) - 1} dims for {pattern!r}, got {x.dim()}")
        extra = [f"...{d}" for d in range(extra_count)]
        left, right = _with_ellipsis(left, extra), _with_ellipsis(right, extra)
    if len(left) != x.dim():
        raise ValueError(f"rearrange: expected {len(left)} dims for {pattern!r}, got shape {tuple(x.shape)}")
    names = [name for group in left for name in group]
    if unused := set(axes_lengths) - set(names):
        raise ValueError(f"rearrange: sizes given for {sorted(unused)}, which {pattern!r} does not name")
    sizes = _sizes(x.shape, left, axes_lengths, pattern)
    split = x.reshape([sizes[name] for name in names])
    moved = split.permute([names.index(name) for group in right for name in group]) if names else split
    joined: Tensor = moved.reshape([math.prod(sizes[name] for name in group) for group in right])
    return joined
