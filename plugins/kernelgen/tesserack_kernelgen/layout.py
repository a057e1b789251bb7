"""Dimensions and strides: what may be merged, and the text that turns a number into coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["contiguous", "coordinates", "lines", "merge", "offset_text", "reach", "uniform"]

Dims = tuple[int, ...]


def merge(sizes: Sequence[int], *strides: Sequence[int]) -> tuple[Dims, list[Dims]]:
    """Sizes and strides with dims of size 1 dropped, and neighbours merged where every operand allows.

    >>> merge((2, 3, 4), (12, 4, 1), (0, 4, 1))
    ((2, 12), [(12, 1), (0, 1)])
    """
    kept: list[tuple[int, list[int]]] = []
    for d, size in enumerate(sizes):
        if size == 1:
            continue
        steps = [s[d] for s in strides]
        if kept and all(outer == size * inner for outer, inner in zip(kept[-1][1], steps, strict=True)):
            kept[-1] = (kept[-1][0] * size, steps)
        else:
            kept.append((size, steps))
    merged = [tuple(steps[k] for _, steps in kept) for k in range(len(strides))]
    return tuple(size for size, _ in kept), merged


def lines(sizes: Sequence[int], *strides: Sequence[int]) -> tuple[Dims, list[Dims]]:
    """As :func:`merge`, of all dims but the last; at least one dim, so that one line has the text of many.

    >>> lines((2, 3, 4), (12, 4, 1)), lines((4,), (1,))
    (((6,), [(4,)]), ((1,), [(0,)]))
    """
    outer, steps = merge(sizes[:-1], *(s[:-1] for s in strides))
    return (outer, steps) if outer else ((1,), [(0,)] * len(strides))


def contiguous(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie in row-major order without gaps."""
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def uniform(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether there is one element in memory."""
    return all(stride == 0 or size == 1 for size, stride in zip(sizes, strides, strict=True))


def reach(operand: Any) -> int:
    """A bound of what an index into the operand may be, in elements."""
    steps: int = sum((size - 1) * abs(stride) for size, stride in zip(operand.shape, operand.strides, strict=True))
    return max(steps + 1, int(operand.numel))


def coordinates(number: str, sizes: Sequence[str], names: Sequence[str]) -> str:
    """Statements that declare coordinates of an element, given its number in row-major order. Sizes are expressions.

    >>> coordinates("i", ["n0", "n1"], ["c0", "c1"])
    'const idx c1 = (i) % n1; const idx c0 = (i) / n1;'
    """
    if not sizes:
        return ""
    lines, rest = [], f"({number})"
    for d in range(len(sizes) - 1, 0, -1):
        lines.append(f"const idx {names[d]} = {rest} % {sizes[d]};")
        if d > 1:
            lines.append(f"const idx r{names[d]} = {rest} / {sizes[d]};")
            rest = f"r{names[d]}"
        else:
            rest = f"{rest} / {sizes[d]}"
    return " ".join((*lines, f"const idx {names[0]} = {rest};"))


def offset_text(names: Sequence[str], strides: Sequence[str]) -> str:
    """The sum of coordinates times strides, all expressions.

    >>> offset_text(["c0", "c1"], ["a.n0", "1"])
    '(c0 * a.n0 + c1)'
    """
    terms = [
        name if step == "1" else f"{name} * {step}" for name, step in zip(names, strides, strict=True) if step != "0"
    ]
    return f"({' + '.join(terms)})" if terms else "0"
