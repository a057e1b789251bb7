"""Tensors as graphs of cuDNN want them told, and generated kernels between such, in operands or in the workspace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tesserack.backends import WORKSPACE, Block, Buffer, Launch, LaunchPlan
from tesserack_kernelgen.card import Call
from tesserack_kernelgen.dtypes import LOADED
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.templates.pointwise import Elementwise

if TYPE_CHECKING:
    from tesserack_cuda.card import CUDACard

__all__ = ["Placed", "add_bias", "along_channels", "generated"]


@dataclass(frozen=True)
class Placed:
    """What lies somewhere, as operands of a call have it; ``source`` is its number there, or WORKSPACE."""

    shape: Sequence[int]
    strides: Sequence[int]
    dtype: Any
    byte_offset: int
    source: int

    @classmethod
    def of(cls, operand: Any, source: int) -> Placed:
        """An operand, with a spatial dim of 1 where there is one only."""
        sizes, strides = [*operand.shape], [*operand.strides]
        if len(sizes) == 3:
            sizes.insert(2, 1)
            strides.insert(2, sizes[3] * strides[2])
        return cls(sizes, strides, operand.dtype, operand.byte_offset, source)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def packed(self, last: bool) -> list[int]:
        """The strides of its sizes, by images or with the channels last."""
        order = [0, *range(2, len(self.shape)), 1] if last else [*range(len(self.shape))]
        strides, step = [0] * len(order), 1
        for dim in reversed(order):
            strides[dim], step = step, step * self.shape[dim]
        return strides

    def lies(self, last: bool) -> bool:
        """Whether it is dense in that layout, whatever dims of 1 say."""
        expected = self.packed(last)
        return all(n == 1 or a == b for n, a, b in zip(self.shape, self.strides, expected, strict=True))

    def told(self, last: bool) -> Placed:
        """The same with the strides of the layout, if it lies so: dims of 1 tell cuDNN, too."""
        strides = self.packed(last) if self.lies(last) else self.strides
        return Placed(self.shape, strides, self.dtype, self.byte_offset, self.source)


def generated(card: CUDACard, device: int, op: str, template: Callable[[Call], Any], out: Placed, x: Placed) -> Launch:
    """A kernel of the generator from one tensor to another, wherever they lie."""
    (launch,) = template(Call(card, card.device(device), op, None, None, (out,), (x,), (), None)).launches
    numbers = {0: out.source, 1: x.source, WORKSPACE: WORKSPACE}
    arguments: list[Buffer | Block] = []
    for argument in launch.arguments:
        if isinstance(argument, Buffer):
            arguments.append(Buffer(numbers[argument.operand]))
            continue
        # Where something lies in the workspace was written into the block; the core knows of operands alone.
        patches = [p._replace(source=numbers[p.source]) for p in argument.patches if numbers[p.source] != WORKSPACE]
        arguments.append(Block(argument.data, patches))
    return Launch(launch.entry, launch.kernel, launch.groups, launch.group_size, arguments, launch.shared_bytes)


def along_channels(bias: Any, out: Placed, source: int) -> Placed:
    """A vector as a tensor of one image with one position."""
    ones = [1] * (len(out.shape) - 2)
    step = bias.strides[0]
    shape, strides = [1, bias.numel, *ones], [bias.numel * step, step, *(step for _ in ones)]
    return Placed(shape, strides, bias.dtype, bias.byte_offset, source)


def add_bias(call: Call) -> LaunchPlan:
    """``out += bias`` along the channels."""
    out, bias = call.outputs[0], call.inputs[0]
    kernel = Kernel(call, "add_bias")
    target, source = kernel.output(0), kernel.input(0)
    c = LOADED[target.dtype]

    def add(at: list[str]) -> str:
        return "  " + target.store(at[0], f"{target.load(at[0], c)} + {source.load(at[1], c)}", c)

    steps = [bias.strides[1] if dim == 1 else 0 for dim in range(len(out.shape))]
    return Elementwise(kernel, out.shape, [out.strides, steps], add, looped=True).plan()
