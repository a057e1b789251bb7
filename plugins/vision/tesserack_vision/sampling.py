"""Values of a map between its points, by bilinear interpolation."""

from __future__ import annotations

import tesserack as ts
from tesserack import Tensor

__all__ = ["bilinear", "gradient_of"]


def bilinear(rows: Tensor, base: Tensor, y: Tensor, x: Tensor, height: int, width: int, *, edge: str) -> Tensor:
    """Samples of maps at points between pixels.

    ``rows`` holds all maps as (maps * height * width, channels); ``base`` says at which row a sample's map begins, and
    ``y`` and ``x`` (all of one shape S) where it lies in it. Returns S + (channels,). Beyond a pixel outside the map
    samples are zero; up to there ``edge="clamp"`` takes the map's edge (RoI align), ``"zeros"`` fades to zero
    (deformable convolution).
    """
    outside = (y < -1.0) | (y > height) | (x < -1.0) | (x > width)
    if edge == "clamp":
        y, x = y.clamp(min=0), x.clamp(min=0)
    else:
        outside = (y <= -1.0) | (y >= height) | (x <= -1.0) | (x >= width)
    top, left = y.detach().floor(), x.detach().floor()
    if edge == "clamp":
        top, left = top.clamp(max=height - 1), left.clamp(max=width - 1)
        y, x = ts.where(top >= height - 1, top, y), ts.where(left >= width - 1, left, x)
    down, right = y - top, x - left
    out = None
    for dy, wy in ((0, 1 - down), (1, down)):
        for dx, wx in ((0, 1 - right), (1, right)):
            row, column = top + dy, left + dx
            weight = wy * wx
            if edge == "zeros":
                there = (row >= 0) & (row <= height - 1) & (column >= 0) & (column <= width - 1)
                weight = weight * there
            weight = ts.where(outside, ts.zeros_like(weight), weight)
            row, column = row.clamp(0, height - 1), column.clamp(0, width - 1)
            index = base + (row * width + column).to(ts.int64)
            part = rows.index_select(0, index.reshape(-1)).view(*index.shape, rows.shape[1]) * weight.unsqueeze(-1)
            out = part if out is None else out + part
    assert out is not None
    return out


def gradient_of(function: object, inputs: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    """Gradients of ``function(*inputs)`` where its results have these, with respect to each input."""
    with ts.enable_grad():
        leaves = [t.detach().requires_grad_() for t in inputs]
        results = function(*leaves)  # type: ignore[operator]
        results = results if isinstance(results, tuple) else (results,)
        if not any(result.requires_grad for result in results):  # of no region at all
            return [ts.zeros_like(leaf) for leaf in leaves]
        return list(ts.autograd.grad(results, leaves, grads))
