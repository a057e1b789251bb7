"""Convolutions that look aside: Zhu et al., "Deformable ConvNets v2: More Deformable, Better Results", 2019."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor

from tesserack_vision.sampling import bilinear, gradient_of

__all__ = ["OPERATORS", "deform_conv2d"]


def _check(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None, sizes: Any, groups: int, parts: int
) -> None:
    if input.ndim != 4 or weight.ndim != 4 or offset.ndim != 4:
        raise RuntimeError(
            "deform_conv2d: expected input, weight and offset of 4 dims, got "
            f"{tuple(input.shape)}, {tuple(weight.shape)}, {tuple(offset.shape)}"
        )
    n, channels = input.shape[:2]
    kh, kw = weight.shape[2:]
    if channels != weight.shape[1] * groups or weight.shape[0] % groups:
        raise RuntimeError(
            f"deform_conv2d: expected input of {weight.shape[1] * groups} channels for {groups} groups, got {channels}"
        )
    if channels % parts or offset.shape[1] != 2 * parts * kh * kw:
        raise RuntimeError(
            f"deform_conv2d: offset.shape[1] is not valid: got: {offset.shape[1]} expected: {2 * parts * kh * kw}"
        )
    if tuple(offset.shape[2:]) != sizes or offset.shape[0] != n:
        raise RuntimeError(f"deform_conv2d: expected offsets for {n} results of {sizes}, got {tuple(offset.shape)}")
    if mask is None:
        return
    if mask.ndim == 4 and mask.shape[1] != parts * kh * kw:
        raise RuntimeError(
            f"deform_conv2d: mask.shape[1] is not valid: got: {mask.shape[1]} expected: {parts * kh * kw}"
        )
    if tuple(mask.shape) != (n, parts * kh * kw, *sizes):
        raise RuntimeError(
            f"deform_conv2d: mask must have shape {(n, parts * kh * kw, *sizes)}, got {tuple(mask.shape)}"
        )


def _convolved(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    bias: Tensor,
    geometry: Any,
    groups: int,
    parts: int,
) -> Tensor:
    """Samples as columns, (N, OH, OW, kernel, C), times the weight."""
    (sh, sw), (ph, pw), (dh, dw), (oh, ow) = geometry
    n, channels, height, width = input.shape
    kh, kw = weight.shape[2:]

    def steps(count: int) -> Tensor:
        return ts.arange(count, dtype=offset.dtype, device=offset.device)

    moved = offset.view(n, parts, kh, kw, 2, oh, ow)
    y = moved[:, :, :, :, 0] + (steps(oh) * sh - ph).view(-1, 1) + (steps(kh) * dh).view(-1, 1, 1, 1)
    x = moved[:, :, :, :, 1] + (steps(ow) * sw - pw) + (steps(kw) * dw).view(-1, 1, 1)
    # Groups of channels look at places of their own: each is a map.
    maps = input.view(n, parts, channels // parts, height, width).permute(0, 1, 3, 4, 2)
    rows = maps.reshape(-1, channels // parts)
    base = ts.arange(n * parts, device=input.device).view(n, parts, 1, 1, 1, 1) * (height * width)
    values = bilinear(rows, base.expand_as(y), y, x, height, width, edge="zeros")
    if mask is not None:
        values = values * mask.view(n, parts, kh, kw, oh, ow).unsqueeze(-1)
    # (N, parts, kh, kw, OH, OW, C / parts) to (groups, N * OH * OW, C / groups * kernel)
    taps = channels // groups * kh * kw
    columns = values.permute(0, 4, 5, 1, 6, 2, 3).reshape(n * oh * ow, groups, taps).transpose(0, 1)
    out = columns @ weight.reshape(groups, weight.shape[0] // groups, taps).transpose(1, 2)
    out = out.permute(1, 0, 2).reshape(n, oh, ow, weight.shape[0]).permute(0, 3, 1, 2)
    return (out + bias.view(1, -1, 1, 1)).contiguous()


def _geometry(
    input: Tensor, weight: Tensor, sh: int, sw: int, ph: int, pw: int, dh: int, dw: int
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]]:
    kh, kw = weight.shape[2:]
    oh = (input.shape[2] + 2 * ph - (dh * (kh - 1) + 1)) // sh + 1
    ow = (input.shape[3] + 2 * pw - (dw * (kw - 1) + 1)) // sw + 1
    if min(sh, sw, dh, dw) < 1 or min(ph, pw) < 0 or oh < 1 or ow < 1:
        raise RuntimeError(
            f"deform_conv2d: expected a result of some size, got {(oh, ow)} from input {tuple(input.shape)}, kernel "
            f"{(kh, kw)}, stride {(sh, sw)}, padding {(ph, pw)}, dilation {(dh, dw)}"
        )
    return (sh, sw), (ph, pw), (dh, dw), (oh, ow)


def deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int,
    groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    """(N, C, H, W) convolved where each tap of the kernel looks ``offset`` aside, times ``mask`` if that is used.

    ``offset`` is (N, 2 * offset_groups * kh * kw, OH, OW), y before x; ``mask`` (N, offset_groups * kh * kw, OH, OW).
    """
    geometry = _geometry(input, weight, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w)
    _check(input, weight, offset, mask if use_mask else None, geometry[3], groups, offset_groups)
    return _convolved(input, weight, offset, mask if use_mask else None, bias, geometry, groups, offset_groups)


def deform_conv2d_backward(
    grad: Tensor, input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int,
    groups: int, offset_groups: int, use_mask: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of :func:`deform_conv2d`: of input, weight, offset, mask and bias."""
    geometry = _geometry(input, weight, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w)

    def forward(x: Tensor, w: Tensor, o: Tensor, b: Tensor, *m: Tensor) -> Tensor:
        return _convolved(x, w, o, m[0] if m else None, b, geometry, groups, offset_groups)

    found = gradient_of(forward, [input, weight, offset, bias, *([mask] if use_mask else [])], [grad])
    return found[0], found[1], found[2], found[4] if use_mask else ts.zeros_like(mask), found[3]


_GEOMETRY = (
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
_TENSORS = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"
OPERATORS: dict[str, Any] = {
    f"deform_conv2d({_TENSORS}, {_GEOMETRY}) -> Tensor": deform_conv2d,
    f"_deform_conv2d_backward(Tensor grad, {_TENSORS}, {_GEOMETRY}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)": (
        deform_conv2d_backward
    ),
}
