"""Gradients of strided convolutions as several of stride 1, for devices that run loops.

Positions of an image that leave the same rest, divided by the stride, meet the same taps of the window: those of one
rest, which lie a stride apart. Between such an image, these taps and all results there is a convolution of stride 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.dtypes import name_of
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.templates import _direct, _direct_weight
from tesserack_kernelgen.templates._direct_weight import Lattice
from tesserack_kernelgen.templates._factor import Axis, Factor
from tesserack_kernelgen.templates._images import Images, Space
from tesserack_kernelgen.templates._product import Product
from tesserack_kernelgen.templates.pointwise import Elementwise

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = ["Windows", "backward_input", "backward_weight"]

_MOST = 16  # each is launched, and has to be worth it


@dataclass(frozen=True)
class Windows:
    """By dim (height, width): the window's sizes, the stride, the padding."""

    taps: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    def phases(self, images: Images) -> Iterator[_Phase]:
        """All that have positions in the image."""
        height, width = ([self._along(d, t, images.shape[2 + d]) for t in range(self.stride[d])] for d in (0, 1))
        for y in height:
            for x in width:
                if y.size and x.size:
                    yield _Phase(self, y, x)

    def _along(self, d: int, tap: int, size: int) -> _Along:
        stride, padding = self.stride[d], self.padding[d]
        start = (tap - padding) % stride
        taps = max(0, -(-(self.taps[d] - tap) // stride))
        return _Along(tap, taps, start, max(0, -(-(size - start) // stride)), (start + padding - tap) // stride)


@dataclass(frozen=True)
class _Along:
    """Along one dim: the first tap and how many; the first position and how many; the result that the first tap of the
    first position belongs to.
    """

    tap: int
    taps: int
    start: int
    size: int
    result: int


@dataclass(frozen=True)
class _Phase:
    windows: Windows
    y: _Along
    x: _Along

    @property
    def taps(self) -> tuple[int, int]:
        return self.y.taps, self.x.taps

    def images(self, images: Images) -> Images:
        """Those positions of images that are of this phase."""
        (n, c, _, _), (to_n, to_c, to_y, to_x) = images.shape, images.strides
        stride = self.windows.stride
        return Images(
            images.operand,
            (n, c, self.y.size, self.x.size),
            (to_n, to_c, to_y * stride[0], to_x * stride[1]),
            images.group,
            self.y.start * to_y + self.x.start * to_x,
        )

    @property
    def of_taps(self) -> tuple[int, tuple[int, int]]:
        """The number of the first tap in the window, and the steps to the next by dim."""
        width, stride = self.windows.taps[1], self.windows.stride
        return self.y.tap * width + self.x.tap, (stride[0] * width, stride[1])

    def space(self, back: bool) -> Space:
        halo = (self.y.taps - 1, self.x.taps - 1)
        results = (self.y.result, self.x.result)
        if not back:
            return Space(self.taps, halo, (0, 0), (1, 1), results)
        return Space(self.taps, halo, halo, (-1, -1), (halo[0] - results[0], halo[1] - results[1]))


def _few(call: Call, w: Windows) -> bool:
    return call.device.serial and 1 < math.prod(w.stride) <= _MOST


def backward_input(call: Call, p: Product, results: Images, images: Images, w: Windows) -> LaunchPlan | None:
    """The launches for a gradient of images of ``p``; None where it is not for this schedule."""
    if not _few(call, w):
        return None
    launches: list[Launch] = []
    phases = list(w.phases(images))
    if any(0 in phase.taps for phase in phases):
        launches += _clear(call)
    channels, filters, taps = images.shape[1], results.shape[1], math.prod(w.taps)
    for phase in phases:
        if 0 in phase.taps:
            continue
        first, steps = phase.of_taps
        here = phase.images(images)
        inner = Axis((filters, *phase.taps), (channels * taps, *steps))
        product = replace(
            p,
            sizes=(channels, here.shape[0] * here.shape[2] * here.shape[3], filters * math.prod(phase.taps)),
            a=Factor(p.a.operand, Axis((channels,), (taps,)), inner, start=first, batch=p.a.batch),
        )
        if (made := _direct.plan(call, product, results, here, phase.space(back=True))) is None:
            return None
        launches += made.launches or ()
    return LaunchPlan(launches)


def _clear(call: Call) -> Sequence[Launch]:
    kernel, out = Kernel(call, "clear"), call.outputs[0]
    target = kernel.output(0)
    c = "f64" if name_of(out.dtype) == "float64" else "f32"
    cleared = Elementwise(kernel, out.shape, [out.strides], lambda at: target.store(at[0], "0", c), looped=True)
    return cleared.plan().launches or ()


def backward_weight(call: Call, p: Product, results: Images, images: Images, w: Windows) -> Any:
    """The launches for a gradient of the weight, ``p``; None where it is not for this schedule."""
    if not _few(call, w):
        return None
    launches: list[Launch] = []
    workspace, taps = 0, math.prod(w.taps)
    phases = [phase for phase in w.phases(images) if 0 not in phase.taps]
    if sum(math.prod(phase.taps) for phase in phases) != taps:  # some taps meet no position
        launches += _clear(call)
    for phase in phases:
        first, steps = phase.of_taps
        product = replace(p, sizes=(p.sizes[0], images.shape[1] * math.prod(phase.taps), p.sizes[2]))
        lattice = Lattice(first, (images.shape[1], *phase.taps), (taps, *steps))
        made = _direct_weight.plan(call, product, results, phase.images(images), phase.space(back=False), lattice)
        if made is None:
            return None
        launches += made.launches or ()
        workspace = max(workspace, made.workspace)
    return LaunchPlan(launches, workspace)
