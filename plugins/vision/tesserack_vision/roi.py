"""Regions of a map, sampled to one size. He et al., "Mask R-CNN", 2017; by position: Dai et al., "R-FCN", 2016."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tesserack as ts
from tesserack import Tensor

from tesserack_vision.sampling import bilinear, gradient_of

__all__ = ["OPERATORS", "ps_roi_align", "roi_align"]

SAMPLES = 1 << 20  # numbers sampled at once: regions go in groups


def check(op: str, input: Tensor, rois: Tensor) -> None:
    """What all operators on regions ask."""
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise RuntimeError(f"{op}: rois must have shape as Tensor[K, 5], got {tuple(rois.shape)}")
    if input.ndim != 4:
        raise RuntimeError(f"{op}: expected input of shape (N, C, H, W), got {tuple(input.shape)}")
    if input.dtype != rois.dtype:
        raise RuntimeError(f"{op}: expected input and rois of one dtype, got {input.dtype} and {rois.dtype}")
    if input.device != rois.device:
        raise RuntimeError(f"{op}: expected input and rois on one device, got {input.device} and {rois.device}")


def groups(rois: Tensor, numbers: int) -> Iterator[Tensor]:
    """Regions in groups of which each needs about ``SAMPLES`` numbers."""
    step = max(1, SAMPLES // max(numbers, 1))
    for first in range(0, len(rois), step):
        yield rois[first : first + step]


def _samples(start: Tensor, size: Tensor, bins: int, ratio: int) -> tuple[Tensor, Tensor, Tensor]:
    """Along one side: where regions are sampled, (K, bins, S), which of these count, and how many do, (K)."""
    count = ts.full_like(size, float(ratio)) if ratio > 0 else (size / bins).ceil().clamp(min=0)
    most = max(int(count.max().item()) if len(count) else 1, 1)
    step = ts.arange(most, dtype=size.dtype, device=size.device)
    inside = step < count[:, None]
    offset = (step + 0.5) / count.clamp(min=1)[:, None]
    at = ts.arange(bins, dtype=size.dtype, device=size.device)
    where = start[:, None, None] + (size / bins)[:, None, None] * (at[:, None] + offset[:, None, :])
    return where, inside, count


def _sampled(
    rows: Tensor,
    rois: Tensor,
    shape: tuple[int, ...],
    scale: float,
    bins: tuple[int, int],
    ratio: int,
    half: bool,
    least: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Samples of regions, (K, ph, sy, pw, sx, C), which of (K, 1, sy, 1, sx) count, and how many, (K)."""
    height, width = shape[2:]
    offset = 0.5 if half else 0.0
    x1, y1, x2, y2 = (rois[:, k] * scale - offset for k in range(1, 5))
    w, h = x2 - x1, y2 - y1
    if least is not None:
        w, h = w.clamp(min=least), h.clamp(min=least)
    y, in_y, count_y = _samples(y1, h, bins[0], ratio)
    x, in_x, count_x = _samples(x1, w, bins[1], ratio)
    k, ph, sy = y.shape
    pw, sx = x.shape[1:]
    full = (k, ph, sy, pw, sx)
    base = (rois[:, 0].to(ts.int64) * (height * width)).view(k, 1, 1, 1, 1).expand(full)
    ys, xs = y[:, :, :, None, None].expand(full), x[:, None, None].expand(full)
    values = bilinear(rows, base, ys, xs, height, width, edge="clamp")
    counted = in_y[:, None, :, None, None] & in_x[:, None, None, None, :]
    return values, counted, (count_y * count_x).clamp(min=1)


def _rows(input: Tensor) -> Tensor:
    """(N, C, H, W) as (N * H * W, C)."""
    return input.permute(0, 2, 3, 1).reshape(-1, input.shape[1])


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """(N, C, H, W) and regions (K, 5) as index, x1, y1, x2, y2: (K, C, pooled_height, pooled_width).

    Each is the mean of bilinear samples in a part of a region, ``sampling_ratio`` a side, or one for each pixel.
    """
    check("roi_align", input, rois)
    rows, made = _rows(input), []
    per = input.shape[1] * pooled_height * pooled_width * (sampling_ratio**2 if sampling_ratio > 0 else 16)
    for some in groups(rois, per):
        values, counted, count = _sampled(
            rows, some, tuple(input.shape), spatial_scale, (pooled_height, pooled_width), sampling_ratio, aligned,
            None if aligned else 1.0,
        )  # fmt: skip
        total = (values * counted.unsqueeze(-1)).sum((2, 4)) / count.view(-1, 1, 1, 1)
        made.append(total.permute(0, 3, 1, 2))
    if not made:
        return input.new_empty((0, input.shape[1], pooled_height, pooled_width))
    return ts.cat(made).contiguous()


def qroi_align(
    input: Tensor,
    rois: Tensor,
    input_scale: float,
    input_zero_point: int,
    rois_scale: float,
    rois_zero_point: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """:func:`roi_align` of the whole numbers of quantized tensors; the result has the scale of its input.

    The input is one image, as by torchvision, which does not look at the regions' indices then.
    """
    check("qroi_align", input, rois)
    if input.dtype not in (ts.uint8, ts.int8, ts.int32):
        raise NotImplementedError(f"qroi_align: expected whole numbers of uint8, int8 or int32, got {input.dtype}")
    if input.shape[0] != 1:
        raise RuntimeError(
            f"qroi_align: Only one image per batch is allowed when tensors are quantized, got {input.shape[0]}; "
            "call it for each image"
        )
    values, where = input.float() - input_zero_point, (rois.float() - rois_zero_point) * rois_scale
    where[:, 0] = 0
    out = roi_align(values, where, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned)
    limits = ts.iinfo(input.dtype)
    return (out + input_zero_point).round().clamp(limits.min, limits.max).to(input.dtype)


def _mapping(channels: int, bins: tuple[int, int], like: Tensor) -> tuple[Tensor, int]:
    """Which channel each part of a position-sensitive result looks at, (C / (ph * pw), ph, pw)."""
    ph, pw = bins
    if channels % (ph * pw):
        raise RuntimeError(f"ps_roi: input channels must be a multiple of {ph} * {pw}, got {channels}")
    return ts.arange(channels, device=like.device).view(-1, ph, pw), channels // (ph * pw)


def roi_align_of_quantized(input: Any, rois: Any, *numbers: Any) -> Any:
    """:func:`qroi_align` of tensors with a scale and a zero point."""
    from tesserack.nn.quantized.tensor import _make_per_tensor_quantized_tensor

    (scale, zero), (rois_scale, rois_zero) = ((x.q_scale(), x.q_zero_point()) for x in (input, rois))
    whole = qroi_align(input.int_repr(), rois.int_repr(), scale, zero, rois_scale, rois_zero, *numbers)
    return _make_per_tensor_quantized_tensor(whole, scale, zero)


def _ps_sum(input: Tensor, rois: Tensor, scale: float, bins: tuple[int, int], ratio: int) -> Tensor:
    ph, pw = bins
    _, out = _mapping(input.shape[1], bins, input)
    rows, made = _rows(input), []
    per = input.shape[1] * ph * pw * (ratio**2 if ratio > 0 else 16)
    for some in groups(rois, per):
        values, counted, count = _sampled(rows, some, tuple(input.shape), scale, bins, ratio, True, None)
        means = (values * counted.unsqueeze(-1)).sum((2, 4)) / count.view(-1, 1, 1, 1)
        # Each part takes the channels that belong to it.
        parts = means.view(len(some), ph, pw, out, ph, pw)
        chosen = parts.diagonal(dim1=1, dim2=4).diagonal(dim1=1, dim2=3)
        made.append(chosen)
    return ts.cat(made).contiguous() if made else input.new_empty((0, out, ph, pw))


def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    """As :func:`roi_align`, each part of a region looking at channels of its own; and which channel that was."""
    check("ps_roi_align", input, rois)
    bins = (pooled_height, pooled_width)
    channels, out = _mapping(input.shape[1], bins, input)
    mapping = channels.to(ts.int32).expand(len(rois), out, *bins).contiguous()
    return _ps_sum(input, rois, spatial_scale, bins, sampling_ratio), mapping


def _backward(forward: Callable[..., Tensor], grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The operators are linear in their input: where it is zero makes no difference."""
    return gradient_of(forward, [grad.new_zeros(shape)], [grad])[0]


def roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    scale: float,
    ph: int,
    pw: int,
    n: int,
    c: int,
    h: int,
    w: int,
    ratio: int,
    aligned: bool,
) -> Tensor:
    """The gradient of :func:`roi_align` with respect to its input."""
    return _backward(lambda x: roi_align(x, rois, scale, ph, pw, ratio, aligned), grad, (n, c, h, w))


def ps_roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    mapping: Tensor,
    scale: float,
    ph: int,
    pw: int,
    ratio: int,
    n: int,
    c: int,
    h: int,
    w: int,
) -> Tensor:
    """The gradient of :func:`ps_roi_align` with respect to its input."""
    return _backward(lambda x: _ps_sum(x, rois, scale, (ph, pw), ratio), grad, (n, c, h, w))


_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_BINS = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
OPERATORS: dict[str, Any] = {
    f"roi_align(Tensor input, Tensor rois, {_BINS}, int sampling_ratio, bool aligned) -> Tensor": roi_align,
    f"_roi_align_backward(Tensor grad, Tensor rois, {_BINS}, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor": (
        roi_align_backward
    ),
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
    f"int rois_zero_point, {_BINS}, int sampling_ratio, bool aligned) -> Tensor": qroi_align,
    f"ps_roi_align(Tensor input, Tensor rois, {_BINS}, int sampling_ratio) -> (Tensor, Tensor)": ps_roi_align,
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BINS}, int sampling_ratio, {_SIZES})"
    " -> Tensor": ps_roi_align_backward,
}
