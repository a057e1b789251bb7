"""The two factors of a generated matrix product: where the element (row or column, k) of each lies in memory.

A matrix has one stride along each side. A convolution's patches, never written to memory, have digits instead: the
number of a column splits into image and position, k into channel and tap; the last digits of both sides add up to
coordinates in the image, which fall outside of it where there is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tesserack_kernelgen.kernel import Kernel, Tensor

__all__ = ["Axis", "Coordinate", "Factor", "FactorText"]


@dataclass(frozen=True)
class Axis:
    """One side of a factor, outermost digit first: sizes, and how far each digit moves in memory and in coordinates.

    ``steps`` belong to the last digits, one for each coordinate of the factor.
    """

    sizes: Sequence[int]
    strides: Sequence[int]
    steps: Sequence[int] = ()


@dataclass(frozen=True)
class Coordinate:
    """A spatial dim: valid are multiples of ``divisor`` whose quotient is from 0 to ``limit``, ``stride`` apart."""

    limit: int
    start: int
    stride: int
    divisor: int = 1


@dataclass(frozen=True)
class Factor:
    """A factor of a product: the input it is, its outer side (m or n) and its inner one (k).

    ``run`` names the side, ``"outer"`` or ``"inner"``, whose last digit moves to neighbours in memory.
    """

    operand: int
    outer: Axis
    inner: Axis
    coordinates: Sequence[Coordinate] = ()
    start: int = 0
    run: str = "inner"
    batch: Sequence[int] = field(default=())

    @property
    def divided(self) -> bool:
        """Whether memory holds only every so many coordinates, as the gradient of a strided convolution does."""
        return any(c.divisor != 1 for c in self.coordinates)

    def side_by_side(self, operand: Any) -> bool:
        """Whether the last digit of the side that runs moves to neighbours, in memory and in the last coordinate."""
        run = self.outer if self.run == "outer" else self.inner
        one_by_one = run.strides[-1] == 1 and tuple(run.steps[-1:]) in ((), (1,))
        return one_by_one and not self.divided and min(operand.strides, default=0) >= 0


class FactorText:
    """A factor within the text of a kernel. Numbers become fields of its struct, so that the text knows no sizes."""

    def __init__(self, k: Kernel, factor: Factor, tensor: Tensor, name: str):
        self.factor, self.tensor, self.name = factor, tensor, name
        self._sides = {
            side: tuple([k.own_index(v) for v in values] for values in (axis.sizes, axis.strides, axis.steps))
            for side, axis in (("outer", factor.outer), ("inner", factor.inner))
        }
        self.start = k.own_index(factor.start)
        operand = k.call.inputs[factor.operand]
        self.neighbours = tensor.dtype in ("float32", "float64") and factor.side_by_side(operand)
        spans = (abs(step) * (size - 1) for size, step in zip(operand.shape, operand.strides, strict=True))
        #: Elements of memory from the operand's first to its last.
        self.reach = k.own_index(sum(spans) + 1) if self.neighbours else ""
        self.coordinates = [
            (k.own_index(c.limit), k.own_index(c.start), k.own_index(c.stride), k.own_index(c.divisor))
            for c in factor.coordinates
        ]

    def decode(self, side: str, number: str, prefix: str) -> str:
        """Statements that declare ``{prefix}at``, the offset of an index along a side, and its coordinates
        ``{prefix}c0``... Digits are left in ``{prefix}0``..."""
        sizes, strides, steps = self._sides[side]
        last = len(sizes) - 1
        lines = [f"idx {prefix}rest = {number};"]
        for d in range(last, 0, -1):
            lines.append(f"const idx {prefix}{d} = {prefix}rest % {sizes[d]}; {prefix}rest /= {sizes[d]};")
        lines.append(f"const idx {prefix}0 = {prefix}rest;")
        moves = [f"{prefix}{d} * {stride}" for d, stride in enumerate(strides)]
        lines.append(f"const idx {prefix}at = {' + '.join(moves)};")
        for j, step in enumerate(steps):
            lines.append(f"const idx {prefix}c{j} = {prefix}{last + 1 - len(steps) + j} * {step};")
        return " ".join(lines)

    def left_in_run(self, side: str, prefix: str) -> str:
        """How many indices follow before a digit other than the last changes; nothing where there is one digit."""
        sizes = self._sides[side][0]
        return f"{sizes[-1]} - {prefix}{len(sizes) - 1}" if len(sizes) > 1 else ""

    def last_stride(self, side: str) -> str:
        """The stride of a side's last digit."""
        return self._sides[side][1][-1]

    def last_step(self, side: str) -> str:
        """How far a side's last digit moves in the last coordinate."""
        return self._sides[side][2][-1]

    def within(self, d: int, value: str, at: str) -> tuple[str, str]:
        """Statements that find coordinate ``d`` (a value before division) in memory, moving ``at``, and whether it is
        there."""
        limit, _, stride, divisor = self.coordinates[d]
        if not self.factor.divided:
            return "", f"{value} >= 0 && {value} < {limit}"
        text = f"const idx w{d} = {value} / {divisor}; {at} += w{d} * {stride};"
        return text, f"{value} >= 0 && w{d} * {divisor} == {value} && w{d} < {limit}"
