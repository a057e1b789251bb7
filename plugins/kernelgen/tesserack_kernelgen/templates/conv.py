"""Convolution over 1 to 3 spatial dims and its two gradients, as matrix products whose patches are not written down
(Chetlur et al., "cuDNN: efficient primitives for deep learning", 2014)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tesserack_kernelgen.dtypes import name_of
from tesserack_kernelgen.templates import _direct, _direct_weight, _phases
from tesserack_kernelgen.templates._factor import Axis, Coordinate, Factor
from tesserack_kernelgen.templates._images import Images, Space
from tesserack_kernelgen.templates._product import Addend, Product, plan
from tesserack_kernelgen.templates._registry import template
from tesserack_kernelgen.templates.matmul import accumulate_dtype

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = ["backward_input", "backward_weight", "convolution"]


@dataclass(frozen=True)
class _Geometry:
    """What the three share: images (N, C, ...), results (N, O, ...), the weight's sizes, and how windows lie."""

    image: Any
    result: Any
    weight: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    @property
    def channels(self) -> int:
        """Of the images, in one group."""
        return self.weight[1]

    @property
    def filters(self) -> int:
        """Channels of the results, in one group."""
        return self.weight[0] // self.groups

    @property
    def kernel(self) -> Sequence[int]:
        """Sizes of the window."""
        return self.weight[2:]

    @property
    def taps(self) -> int:
        """Elements of the window."""
        return math.prod(self.kernel)

    def patches(self, operand: int, outer_positions: bool) -> Factor:
        """The images' windows as a matrix of (channel, tap) by (image, position), either of which is the inner side."""
        space = self.image.strides[2:]
        positions = Axis(
            (1, *self.result.shape[2:]),
            (self.image.strides[0], *(s * m for s, m in zip(space, self.stride, strict=True))),
            self.stride,
        )
        taps = Axis(
            (1, *self.kernel),
            (self.image.strides[1], *(s * d for s, d in zip(space, self.dilation, strict=True))),
            self.dilation,
        )
        outer, inner = (positions, taps) if outer_positions else (taps, positions)
        geometry = zip(self.image.shape[2:], self.padding, space, strict=True)
        limits = [Coordinate(limit, -padding, stride) for limit, padding, stride in geometry]
        start = -sum(p * s for p, s in zip(self.padding, space, strict=True))
        run = "outer" if outer_positions else "inner"
        return Factor(operand, outer, inner, limits, start, run, (self.channels * self.image.strides[1],))

    def spread(self, operand: int) -> Factor:
        """The results seen from the images: (image, position) by (filter, tap), where a result's window begins."""
        result, divided = self.result, any(s != 1 for s in self.stride)
        space = result.strides[2:]
        moves = (0,) * len(space) if divided else space
        positions = Axis((1, *self.image.shape[2:]), (result.strides[0], *moves), (1,) * len(space))
        back = tuple(-d for d in self.dilation)
        taps = Axis((1, *self.kernel), (result.strides[1], *(m * d for m, d in zip(moves, back, strict=True))), back)
        geometry = zip(result.shape[2:], self.padding, space, self.stride, strict=True)
        limits = [Coordinate(*values) for values in geometry]
        start = sum(p * m for p, m in zip(self.padding, moves, strict=True))
        return Factor(operand, positions, taps, limits, start, "outer", (self.filters * result.strides[1],))

    def plane(self, operand: int, tensor: Any, channels: int) -> Images:
        """Images or results as planes of two dims, a line as one of height 1."""
        (n, _, *size), (to_n, to_c, *steps) = tensor.shape, tensor.strides
        (h, w), (to_y, to_x) = _pair(size, 1), _pair(steps, 0)
        return Images(operand, (n, channels, h, w), (to_n, to_c, to_y, to_x), channels * to_c)

    def strided(self) -> Space | None:
        """The same for windows of other strides, forward, if they overlap: patches hold more than images."""
        stride = _pair(self.stride, 1)
        apart = all(size <= by for size, by in zip(self.kernel, self.stride, strict=True))
        if len(self.kernel) > 2 or apart or not 1 < math.prod(stride) <= 16:
            return None
        taps, step, border = _pair(self.kernel, 1), _pair(self.dilation, 1), _pair(self.padding, 0)
        halo = ((taps[0] - 1) * step[0] // stride[0], (taps[1] - 1) * step[1] // stride[1])
        return Space(taps, halo, (0, 0), step, border, stride)

    def windows(self) -> _phases.Windows | None:
        """Windows over planes whose taps are neighbours."""
        if len(self.kernel) > 2 or any(d != 1 for d, size in zip(self.dilation, self.kernel, strict=True) if size > 1):
            return None
        return _phases.Windows(_pair(self.kernel, 1), _pair(self.stride, 1), _pair(self.padding, 0))

    def space(self, back: bool = False) -> Space | None:
        """How windows of stride 1, of several taps, lie over planes; ``back``: of results seen from images."""
        if len(self.kernel) > 2 or self.taps == 1 or any(s != 1 for s in self.stride):
            return None
        taps, step, border = _pair(self.kernel, 1), _pair(self.dilation, 0), _pair(self.padding, 0)
        halo = ((taps[0] - 1) * step[0], (taps[1] - 1) * step[1])
        if not back:
            return Space(taps, halo, (0, 0), step, border)
        return Space(taps, halo, halo, (-step[0], -step[1]), (halo[0] - border[0], halo[1] - border[1]))


def _pair(values: Sequence[int], absent: int) -> tuple[int, int]:
    """Values by dim of one dim or two, as those of two."""
    return (absent, values[0]) if len(values) == 1 else (values[0], values[1])


def _positions(tensor: Any) -> tuple[int, int] | None:
    """How many positions an image has, and their distance in memory; None where that is not the same between all."""
    step = 0
    size_so_far = 1
    for size, stride in zip(reversed(tensor.shape[2:]), reversed(tensor.strides[2:]), strict=True):
        if size == 1:
            continue
        step = step or stride
        if stride != step * size_so_far:
            return None
        size_so_far *= size
    return size_so_far, step or 1


@template("convolution")
def convolution(call: Call) -> Any:
    """``out = cross-correlation of images and weight, + bias``: filters by (image, position), summed over taps."""
    out, (image, weight, bias) = call.outputs[0], call.inputs
    g = _Geometry(image, out, weight.shape, *call.params)
    depth = g.channels * g.taps
    if (plane := _positions(out)) is None:
        return NotImplemented
    positions, step = plane
    matrix = Factor(1, Axis((g.filters,), (depth,)), Axis((depth,), (1,)), batch=(g.filters * depth,))
    addend = None
    if bias is not None:
        by = bias.strides[0] if hasattr(bias, "strides") else 0
        addend = Addend(2, by, 0, (g.filters * by,))
    product = Product(
        sizes=(g.filters, image.shape[0] * positions, depth),
        a=matrix,
        b=g.patches(0, outer_positions=True),
        out_m=out.strides[1],
        out_n=(out.strides[0], step),
        out_inner=positions,
        accumulate=accumulate_dtype(name_of(out.dtype)),
        batch=(g.groups,),
        out_batch=(g.filters * out.strides[1],),
        addend=addend,
    )
    if space := g.space() or g.strided():
        images, results = g.plane(0, image, g.channels), g.plane(-1, out, g.filters)
        if direct := _direct.plan(call, product, images, results, space):
            return direct
    return plan(call, product)


@template("convolution_backward_input")
def backward_input(call: Call) -> Any:
    """The gradient of the images: channels by (image, position), summed over filters and taps."""
    out, (grad, weight) = call.outputs[0], call.inputs
    g = _Geometry(out, grad, weight.shape, *call.params[1:])
    if (plane := _positions(out)) is None:
        return NotImplemented
    positions, step = plane
    each = g.channels * g.taps
    matrix = Factor(1, Axis((g.channels,), (g.taps,)), Axis((g.filters, g.taps), (each, 1)), batch=(g.filters * each,))
    product = Product(
        sizes=(g.channels, out.shape[0] * positions, g.filters * g.taps),
        a=matrix,
        b=g.spread(0),
        out_m=out.strides[1],
        out_n=(out.strides[0], step),
        out_inner=positions,
        accumulate=accumulate_dtype(name_of(out.dtype)),
        batch=(g.groups,),
        out_batch=(g.channels * out.strides[1],),
    )
    if space := g.space(back=True):
        results, images = g.plane(0, grad, g.filters), g.plane(-1, out, g.channels)
        if direct := _direct.plan(call, product, results, images, space):
            return direct
    elif windows := g.windows():
        results, images = g.plane(0, grad, g.filters), g.plane(-1, out, g.channels)
        if phases := _phases.backward_input(call, product, results, images, windows):
            return phases
    return plan(call, product)


@template("convolution_backward_weight")
def backward_weight(call: Call) -> Any:
    """The gradient of the weight: filters by (channel, tap), summed over images and positions."""
    out, (grad, image) = call.outputs[0], call.inputs
    g = _Geometry(image, grad, out.shape, *call.params[1:])
    if (plane := _positions(grad)) is None:
        return NotImplemented
    positions, step = plane
    filters = Factor(
        0,
        Axis((g.filters,), (grad.strides[1],)),
        Axis((grad.shape[0], positions), (grad.strides[0], step)),
        run="inner" if step == 1 else "outer",
        batch=(g.filters * grad.strides[1],),
    )
    depth = g.channels * g.taps
    product = Product(
        sizes=(g.filters, depth, grad.shape[0] * positions),
        a=filters,
        b=g.patches(1, outer_positions=False),
        out_m=depth,
        out_n=(0, 1),
        out_inner=depth,
        accumulate=accumulate_dtype(name_of(out.dtype)),
        batch=(g.groups,),
        out_batch=(g.filters * depth,),
    )
    if space := g.space():
        results, images = g.plane(0, grad, g.filters), g.plane(1, image, g.channels)
        if direct := _direct_weight.plan(call, product, results, images, space):
            return direct
    elif windows := g.windows():
        results, images = g.plane(0, grad, g.filters), g.plane(1, image, g.channels)
        if phases := _phases.backward_weight(call, product, results, images, windows):
            return phases
    return plan(call, product)
