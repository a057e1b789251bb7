"""Slices combined by index on serial devices: an item walks over all slices, in order, with a piece of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tesserack_kernelgen.layout import coordinates, merge

if TYPE_CHECKING:
    from tesserack.backends import Launch

    from tesserack_kernelgen.kernel import Kernel

__all__ = ["by_index"]

_PIECE = 16  # elements of a slice that lie side by side, at least


def by_index(
    kernel: Kernel,
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    dim: int,
    position: Callable[[str], str],
    combine: Callable[[str, str], str],
) -> Launch:
    """A launch that combines slices along ``dim``, of ``sizes``, with those of the output that an index tells.

    Args:
        kernel: which has its operands.
        sizes: of the index.
        strides: of the index, the values and the output; that of the output along ``dim`` does not count.
        dim: along which the index counts.
        position: statements that declare the offset of a slice, ``to``, or continue; given the place of an index.
        combine: statements that combine an element of the output with a value; given the places of both.
    """
    units = kernel.call.device.compute_units
    length = sizes[dim]
    others = [d for d in range(len(sizes)) if d != dim]
    merged, rest = merge([sizes[d] for d in others], *([s[d] for d in others] for s in strides))
    *outer, inner = merged or (1,)
    rest = [s or (0,) for s in rest]
    along = kernel.own_indices(s[dim] for s in strides[:2])
    steps = kernel.indices(s[-1] for s in rest)
    lines = math.prod(outer)
    beside = rest[2][-1] == 1
    pieces = max(1, min(-(-2 * units // lines), inner // _PIECE if beside else inner))
    names = [f"c{d}" for d in range(len(outer))]
    places = [
        " + ".join(("0", *(f"{name} * {kernel.own_index(step)}" for name, step in zip(names, s, strict=False))))
        for s in rest
    ]
    count, across, piece = (kernel.own_index(v) for v in (length, pieces, -(-inner // pieces)))
    width = kernel.own_index(inner)
    slices = f"for (idx r = 0; r < {count}; ++r) {{"
    columns = "for (idx c = first; c < last; ++c) {"
    index, value, out = (
        f"{name} + c * {step}" if step != "0" else name for name, step in zip(("at0", "at1", "at2"), steps, strict=True)
    )
    found = position(f"{index} + r * {along[0]}")
    work = combine(f"to + {out}", f"{value} + r * {along[1]}")
    if steps[0] == "0" and beside:  # all of a slice goes to one place
        loops = f"{slices}\n    {found}\n    {columns}\n      {work}\n    }}\n  }}"
    else:
        order = (slices, columns) if beside else (columns, slices)
        loops = f"{order[0]} {order[1]}\n    {found}\n    {work}\n  }} }}"
    digits = coordinates("line", [kernel.own_index(size) for size in outer], names)
    body = f"""
  const idx line = (idx)GROUP(0) / {across}, first = (idx)GROUP(0) % {across} * {piece};
  const idx last = {width} - first < {piece} ? {width} : first + {piece};
  {digits}
  const idx at0 = {places[0]}, at1 = {places[1]}, at2 = {places[2]};
  {loops}"""
    return kernel.launch(body, (lines * pieces,), (1,))
