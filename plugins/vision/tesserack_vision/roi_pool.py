"""Regions of a map, pooled to one size: Girshick, "Fast R-CNN", 2015; position-sensitive: Dai et al., "R-FCN", 2016."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor

from tesserack_vision.roi import _mapping, _rows, check, groups
from tesserack_vision.sampling import gradient_of

__all__ = ["OPERATORS", "ps_roi_pool", "roi_pool"]


def _spans(start: Tensor, size: Tensor, bins: int, limit: int) -> tuple[Tensor, Tensor]:
    """The pixels of each part along one side: (K, bins, most) of indices, and which of these belong to it."""
    step = (size / bins)[:, None]
    at = ts.arange(bins, dtype=size.dtype, device=size.device)
    first = ((at * step).floor() + start[:, None]).clamp(0, limit)
    last = (((at + 1) * step).ceil() + start[:, None]).clamp(0, limit)
    most = max(int((last - first).max().item()) if len(size) else 0, 1)
    index = first[..., None] + ts.arange(most, dtype=size.dtype, device=size.device)
    return index.clamp(max=max(limit - 1, 0)).to(ts.int64), index < last[..., None]


def _pixels(rois: Tensor, starts: Any, sizes: Any, bins: Any, shape: Any, edge: int = 0) -> Any:
    """The row in ``_rows`` of every pixel of every part, (K, ph, pw, most), and which of these belong to it, of a map
    without its last ``edge`` rows and columns."""
    height, width = shape[2:]
    y, in_y = _spans(starts[0], sizes[0], bins[0], height - edge)
    x, in_x = _spans(starts[1], sizes[1], bins[1], width - edge)
    within = y[:, :, None, :, None] * width + x[:, None, :, None, :]
    there = in_y[:, :, None, :, None] & in_x[:, None, :, None, :]
    base = rois[:, 0].to(ts.int64) * (height * width)
    return within.flatten(3), there.flatten(3), base


def _rounded(rois: Tensor, scale: float, more: int = 1) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Half away from zero, as C's ``round``."""
    scaled = rois[:, 1:] * scale
    whole = scaled.sign() * (scaled.abs() + 0.5).floor()
    x1, y1, x2, y2 = whole.unbind(1)
    return (y1, x1), ((y2 - y1 + more).clamp(min=1), (x2 - x1 + more).clamp(min=1))


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """(N, C, H, W) and regions (K, 5): the largest value in each part of a region, 0 of an empty one, and where in its
    map it stood (int32, -1 of an empty one)."""
    check("roi_pool", input, rois)
    rows, bins, pooled, places = _rows(input), (pooled_height, pooled_width), [], []
    for some in groups(rois, input.shape[1] * pooled_height * pooled_width * 64):
        within, there, base = _pixels(some, *_rounded(some, spatial_scale), bins, input.shape)
        index = (within + base.view(-1, 1, 1, 1)).reshape(-1)
        values = rows.index_select(0, index).view(*within.shape, -1)
        values = values.masked_fill(~there.unsqueeze(-1), -float("inf"))
        top, at = values.max(3)
        empty = ~there.any(3, keepdim=True)
        pooled.append(top.masked_fill(empty, 0).permute(0, 3, 1, 2))
        where = within.unsqueeze(-1).expand_as(values).gather(3, at.unsqueeze(3)).squeeze(3)
        places.append(where.masked_fill(empty, -1).to(ts.int32).permute(0, 3, 1, 2))
    if not pooled:
        shape = (0, input.shape[1], *bins)
        return input.new_empty(shape), ts.empty(shape, dtype=ts.int32, device=input.device)
    return ts.cat(pooled).contiguous(), ts.cat(places).contiguous()


def roi_pool_backward(
    grad: Tensor, rois: Tensor, argmax: Tensor, scale: float, ph: int, pw: int, n: int, c: int, h: int, w: int
) -> Tensor:
    """The gradient of :func:`roi_pool` with respect to its input: what each part got, where its value stood."""
    out = grad.new_zeros((n, c, h * w))
    there = argmax >= 0
    channel = ts.arange(c, device=grad.device).view(1, -1, 1, 1)
    base = (rois[:, 0].to(ts.int64).view(-1, 1, 1, 1) * c + channel) * (h * w)
    index = base + argmax.clamp(min=0).to(ts.int64)
    out.view(-1).index_add_(0, index.reshape(-1), (grad * there).reshape(-1))
    return out.view(n, c, h, w)


def _ps_means(input: Tensor, rois: Tensor, scale: float, bins: tuple[int, int]) -> Tensor:
    ph, pw = bins
    _, out = _mapping(input.shape[1], bins, input)
    rows, made = _rows(input), []
    for some in groups(rois, input.shape[1] * ph * pw * 64):
        # As torchvision has it: a region ends before its last pixel, and so does the map.
        within, there, base = _pixels(some, *_rounded(some, scale, 0), bins, input.shape, edge=1)
        values = rows.index_select(0, (within + base.view(-1, 1, 1, 1)).reshape(-1)).view(*within.shape, -1)
        count = there.sum(3).clamp(min=1).unsqueeze(-1)
        means = (values * there.unsqueeze(-1)).sum(3) / count
        parts = means.view(len(some), ph, pw, out, ph, pw)
        made.append(parts.diagonal(dim1=1, dim2=4).diagonal(dim1=1, dim2=3))
    return ts.cat(made).contiguous() if made else input.new_empty((0, out, ph, pw))


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The mean of each part of a region in channels of its own, and which channel that was (int32)."""
    check("ps_roi_pool", input, rois)
    bins = (pooled_height, pooled_width)
    channels, out = _mapping(input.shape[1], bins, input)
    mapping = channels.to(ts.int32).expand(len(rois), out, *bins).contiguous()
    return _ps_means(input, rois, spatial_scale, bins), mapping


def ps_roi_pool_backward(
    grad: Tensor, rois: Tensor, mapping: Tensor, scale: float, ph: int, pw: int, n: int, c: int, h: int, w: int
) -> Tensor:
    """The gradient of :func:`ps_roi_pool` with respect to its input."""
    zeros = grad.new_zeros((n, c, h, w))
    return gradient_of(lambda x: _ps_means(x, rois, scale, (ph, pw)), [zeros], [grad])[0]


_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_BINS = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
OPERATORS: dict[str, Any] = {
    f"roi_pool(Tensor input, Tensor rois, {_BINS}) -> (Tensor, Tensor)": roi_pool,
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_BINS}, {_SIZES}) -> Tensor": roi_pool_backward,
    f"ps_roi_pool(Tensor input, Tensor rois, {_BINS}) -> (Tensor, Tensor)": ps_roi_pool,
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BINS}, {_SIZES}) -> Tensor": (
        ps_roi_pool_backward
    ),
}
