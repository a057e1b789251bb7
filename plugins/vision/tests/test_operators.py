"""torchvision's operators against plain loops in float64, and their gradients against finite differences."""

import math
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.aten.operators import namespace

pytest.importorskip("tesserack_vision", reason="the package tesserack-vision is not installed")
import tesserack_vision

if not hasattr(namespace("torchvision"), "nms"):
    tesserack_vision.register_operators()
vision: Any = namespace("torchvision")
RNG = np.random.default_rng(0)


def at(map: np.ndarray, y: float, x: float, fade: bool = False) -> float:
    """One bilinear sample of (H, W)."""
    h, w = map.shape
    if (y <= -1 or y >= h or x <= -1 or x >= w) if fade else (y < -1 or y > h or x < -1 or x > w):
        return 0.0
    if not fade:
        y, x = min(max(y, 0.0), h - 1.0), min(max(x, 0.0), w - 1.0)
    y0, x0, total = math.floor(y), math.floor(x), 0.0
    for yy, wy in ((y0, 1 - (y - y0)), (y0 + 1, y - y0)):
        for xx, wx in ((x0, 1 - (x - x0)), (x0 + 1, x - x0)):
            if 0 <= yy < h and 0 <= xx < w:
                total += wy * wx * map[yy, xx]
    return total


def aligned_mean(
    map: np.ndarray, roi: Any, scale: float, bins: Any, cell: Any, ratio: int, half: bool, least: Any
) -> float:
    shift = 0.5 if half else 0.0
    x1, y1, x2, y2 = (v * scale - shift for v in roi)
    w, h = (x2 - x1, y2 - y1) if least is None else (max(x2 - x1, least), max(y2 - y1, least))
    ny = ratio if ratio > 0 else math.ceil(h / bins[0])
    nx = ratio if ratio > 0 else math.ceil(w / bins[1])
    values = [
        at(map, y1 + h / bins[0] * (cell[0] + (k + 0.5) / ny), x1 + w / bins[1] * (cell[1] + (j + 0.5) / nx))
        for k in range(ny)
        for j in range(nx)
    ]
    return sum(values) / max(ny * nx, 1)


def regions(count: int, images: int, width: int, height: int) -> np.ndarray:
    corner = RNG.uniform(-2, 14, (count, 2))
    size = RNG.uniform(0.5, 16, (count, 2))
    index = RNG.integers(0, images, (count, 1))
    return np.concatenate([index, corner, corner + size], 1)


@pytest.mark.parametrize("ratio", [2, -1])
@pytest.mark.parametrize("aligned", [True, False])
def test_roi_align(device: str, ratio: int, aligned: bool) -> None:
    x, rois, bins = RNG.standard_normal((2, 3, 9, 11)), regions(6, 2, 11, 9), (3, 4)
    got = vision.roi_align(ts.tensor(x, device=device), ts.tensor(rois, device=device), 0.6, *bins, ratio, aligned)
    least = None if aligned else 1.0
    for k, (image, *roi) in enumerate(rois):
        for c in range(3):
            for cell in np.ndindex(*bins):
                want = aligned_mean(x[int(image), c], roi, 0.6, bins, cell, ratio, aligned, least)
                assert got[k, c][cell].item() == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("dtype", [ts.uint8, ts.int8, ts.int32])
def test_roi_align_of_quantized_numbers(device: str, dtype: ts.dtype) -> None:
    x = ts.tensor(RNG.integers(20, 100, (1, 2, 9, 11)), device=device)
    rois = ts.tensor([[7, 10, 12, 17, 20], [11, 12, 10, 31, 27]], device=device)  # indices of other images: not read
    got = vision.qroi_align(x.to(dtype), rois.to(dtype), 0.1, 20, 0.5, 10, 1.0, 2, 3, 2, True)
    where = (rois.to(ts.float32) - 10) * 0.5
    where[:, 0] = 0
    want = vision.roi_align((x.to(ts.float32) - 20) * 0.1, where, 1.0, 2, 3, 2, True) / 0.1 + 20
    assert got.dtype is dtype and (got.to(ts.float32) - want).abs().max().item() < 0.501


@pytest.mark.parametrize("ratio", [2, -1])
def test_ps_roi_align(device: str, ratio: int) -> None:
    x, rois, bins = RNG.standard_normal((2, 12, 9, 11)), regions(4, 2, 11, 9), (2, 3)
    got, mapping = vision.ps_roi_align(ts.tensor(x, device=device), ts.tensor(rois, device=device), 0.6, *bins, ratio)
    assert mapping.dtype is ts.int32 and tuple(mapping.shape) == (4, 2, 2, 3)
    for (k, (image, *roi)), c in ((p, c) for p in enumerate(rois) for c in range(2)):
        for cell in np.ndindex(*bins):
            channel = (c * bins[0] + cell[0]) * bins[1] + cell[1]
            assert mapping[k, c][cell].item() == channel
            want = aligned_mean(x[int(image), channel], roi, 0.6, bins, cell, ratio, True, None)
            assert got[k, c][cell].item() == pytest.approx(want, abs=1e-9)


def test_roi_pool(device: str) -> None:
    x, rois, bins = RNG.standard_normal((2, 3, 9, 11)), regions(8, 2, 11, 9), (3, 4)
    got, where = vision.roi_pool(ts.tensor(x, device=device), ts.tensor(rois, device=device), 0.6, *bins)
    half_up = lambda v: math.copysign(math.floor(abs(v) + 0.5), v)  # noqa: E731
    for k, (image, *roi) in enumerate(rois):
        x1, y1, x2, y2 = (int(half_up(v * 0.6)) for v in roi)
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for c, (i, j) in ((c, cell) for c in range(3) for cell in np.ndindex(*bins)):
            top, bottom = (min(max(f, 0), 9) for f in (math.floor(i * h / 3) + y1, math.ceil((i + 1) * h / 3) + y1))
            left, right = (min(max(f, 0), 11) for f in (math.floor(j * w / 4) + x1, math.ceil((j + 1) * w / 4) + x1))
            part = x[int(image), c, top:bottom, left:right]
            want = part.max() if part.size else 0.0
            assert got[k, c, i, j].item() == pytest.approx(want, abs=1e-12)
            place = where[k, c, i, j].item()
            assert (x[int(image), c].flat[place] == want) if part.size else place == -1


def test_ps_roi_pool(device: str) -> None:
    x, rois, bins = RNG.standard_normal((2, 12, 9, 11)), regions(5, 2, 11, 9), (2, 3)
    got, _ = vision.ps_roi_pool(ts.tensor(x, device=device), ts.tensor(rois, device=device), 0.6, *bins)
    half_up = lambda v: math.copysign(math.floor(abs(v) + 0.5), v)  # noqa: E731
    for k, (image, *roi) in enumerate(rois):
        x1, y1, x2, y2 = (half_up(v * 0.6) for v in roi)
        sh, sw = max(y2 - y1, 1) / 2, max(x2 - x1, 1) / 3
        for c, (i, j) in ((c, cell) for c in range(2) for cell in np.ndindex(*bins)):
            top, bottom = (min(max(f, 0), 8) for f in (math.floor(i * sh) + y1, math.ceil((i + 1) * sh) + y1))
            left, right = (min(max(f, 0), 10) for f in (math.floor(j * sw) + x1, math.ceil((j + 1) * sw) + x1))
            part = x[int(image), (c * 2 + i) * 3 + j, int(top) : int(bottom), int(left) : int(right)]
            assert got[k, c, i, j].item() == pytest.approx(part.mean() if part.size else 0.0, abs=1e-9)


@pytest.mark.parametrize("use_mask", [True, False])
def test_deform_conv2d(device: str, use_mask: bool) -> None:
    groups, parts, (kh, kw) = 2, 2, (3, 2)
    x, weight = RNG.standard_normal((2, 4, 7, 6)), RNG.standard_normal((4, 2, kh, kw))
    stride, pad, dilation, (oh, ow) = (2, 1), (1, 2), (1, 2), (4, 8)
    offset = RNG.standard_normal((2, 2 * parts * kh * kw, oh, ow)) * 2
    mask, bias = RNG.standard_normal((2, parts * kh * kw, oh, ow)), RNG.standard_normal(4)
    tensors = [ts.tensor(t, device=device) for t in (x, weight, offset, mask, bias)]
    got = vision.deform_conv2d(*tensors, *stride, *pad, *dilation, groups, parts, use_mask)
    assert tuple(got.shape) == (2, 4, oh, ow)
    for n, o, i, j in np.ndindex(2, 4, oh, ow):
        want = bias[o]
        for c, a, b in np.ndindex(2, kh, kw):
            channel = o // 2 * 2 + c
            part = channel // 2
            tap = (part * kh + a) * kw + b
            y = i * stride[0] - pad[0] + a * dilation[0] + offset[n, 2 * tap, i, j]
            z = j * stride[1] - pad[1] + b * dilation[1] + offset[n, 2 * tap + 1, i, j]
            value = at(x[n, channel], y, z, fade=True) * weight[o, c, a, b]
            want += value * (mask[n, tap, i, j] if use_mask else 1.0)
        assert got[n, o, i, j].item() == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("use_mask", [True, False])
def test_deform_conv2d_of_no_pictures_has_gradients(device: str, use_mask: bool) -> None:
    shapes = ((0, 4, 7, 6), (4, 2, 3, 2), (0, 24, 5, 5), (0, 12 if use_mask else 0, 5, 5), (4,))
    tensors = [ts.zeros(shape, device=device, requires_grad=True) for shape in shapes]
    got = vision.deform_conv2d(*tensors, 1, 1, 0, 0, 1, 1, 2, 2, use_mask)
    assert got.shape == (0, 4, 5, 5)
    grads = vision._deform_conv2d_backward(got.detach(), *tensors, 1, 1, 0, 0, 1, 1, 2, 2, use_mask)
    assert [tuple(g.shape) for g in grads] == list(shapes) and all(g.eq(0).all().item() for g in grads)
    with pytest.raises(RuntimeError, match=r"mask.shape\[1\] is not valid: got: 3 expected: 12"):
        vision.deform_conv2d(*tensors[:3], tensors[0].new_zeros(0, 3, 5, 5), tensors[4], 1, 1, 0, 0, 1, 1, 2, 2, True)


def test_nms_keeps_the_best_of_those_that_overlap(device: str) -> None:
    corner = RNG.uniform(0, 30, (600, 2))
    boxes, scores = np.concatenate([corner, corner + RNG.uniform(1, 12, (600, 2))], 1), RNG.permutation(600) / 600
    area = lambda b: (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])  # noqa: E731
    kept: list[int] = []
    for k in np.argsort(-scores):
        low, high = np.maximum(boxes[kept, :2], boxes[k, :2]), np.minimum(boxes[kept, 2:], boxes[k, 2:])
        inter = np.clip(high - low, 0, None).prod(1)
        if not (inter / (area(boxes[kept]) + area(boxes[k]) - inter) > 0.3).any():
            kept.append(int(k))
    got = vision.nms(ts.tensor(boxes, device=device), ts.tensor(scores, device=device), 0.3)
    assert got.tolist() == kept
    assert vision.nms(ts.empty(0, 4, device=device), ts.empty(0, device=device), 0.3).numel() == 0


def test_rotated_boxes_overlap_as_their_polygons_do(device: str) -> None:
    boxes = np.array([[0, 0, 2, 2, 0], [0, 0, 2, 2, 45], [1, 0, 2, 2, 90], [5, 5, 1, 1, 30], [0, 0, 4, 1, 0]], float)
    got = vision.box_iou_rotated(ts.tensor(boxes, device=device), ts.tensor(boxes, device=device))
    octagon = 8 * (math.sqrt(2) - 1)  # what two squares of side 2 share, one turned by 45 degrees
    assert got.diagonal().tolist() == pytest.approx([1.0] * 5)
    assert got[0, 1].item() == pytest.approx(octagon / (8 - octagon), abs=1e-6)
    assert got[0, 2].item() == pytest.approx(2 / 6, abs=1e-6) and got[0, 3].item() == 0
    assert got[0, 4].item() == pytest.approx(2 / 6, abs=1e-6)


def test_gradients(device: str) -> None:
    rois = ts.tensor(regions(3, 1, 8, 8), device=device)
    x = ts.tensor(RNG.standard_normal((1, 8, 6, 6)), device=device)
    for name, more in (("roi_align", (2, False)), ("ps_roi_align", (2,)), ("roi_pool", ()), ("ps_roi_pool", ())):
        forward = getattr(vision, name)

        def first(t: ts.Tensor, forward: Any = forward, more: Any = more) -> ts.Tensor:
            result = forward(t, rois, 0.5, 2, 2, *more)
            return result if isinstance(result, ts.Tensor) else result[0]

        out = first(x)
        grad = ts.tensor(RNG.standard_normal(tuple(out.shape)), device=device)
        extra = () if name == "roi_align" else (forward(x, rois, 0.5, 2, 2, *more)[1],)
        sizes = (1, 8, 6, 6)
        if "align" in name:
            ratio = more[:1]
            order = (*sizes, *more) if name == "roi_align" else (*ratio, *sizes)
        else:
            order = sizes
        got = getattr(vision, f"_{name}_backward")(grad, rois, *extra, 0.5, 2, 2, *order)
        step = ts.tensor(RNG.standard_normal(sizes), device=device)
        along = ((first(x + 1e-6 * step) - first(x - 1e-6 * step)) / 2e-6 * grad).sum().item()
        assert (got * step).sum().item() == pytest.approx(along, rel=1e-4, abs=1e-6)
        leaf = x.clone().requires_grad_()
        assert ts.autograd.grad(first(leaf), leaf, grad)[0].equal(got)  # also where torchvision says none


def test_gradients_of_deform_conv2d(device: str) -> None:
    tensors = [
        ts.tensor(RNG.standard_normal(shape), device=device).requires_grad_()
        for shape in ((1, 2, 5, 5), (2, 2, 3, 3), (1, 18, 3, 3), (1, 9, 3, 3), (2,))
    ]
    assert ts.autograd.gradcheck(lambda *t: vision.deform_conv2d(*t, 1, 1, 0, 0, 1, 1, 1, 1, True), tensors)


def test_tensors_with_a_scale(device: str) -> None:
    from tesserack.nn.quantized import quantize_per_tensor, quint8

    boxes = ts.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    scores = ts.tensor([0.5, 1.0, 0.25])
    dets, marks = (quantize_per_tensor(x, scale, 0, quint8) for x, scale in ((boxes, 1.0), (scores, 0.25)))
    assert vision.nms(dets, marks, 0.5).tolist() == [1, 2]
    image = quantize_per_tensor(ts.arange(32.0).view(1, 2, 4, 4), 2.0, 10, quint8)
    rois = quantize_per_tensor(ts.tensor([[0.0, 0, 0, 2, 2]]), 1.0, 0, quint8)
    got = vision.roi_align(image, rois, 1.0, 2, 2, 2, False)
    want = vision.roi_align(image.dequantize(), rois.dequantize(), 1.0, 2, 2, 2, False)
    assert (got.q_scale(), got.q_zero_point()) == (2.0, 10)
    assert (got.dequantize() - want).abs().max().item() <= 1.0


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: vision.nms(ts.ones(3, 5), ts.ones(3), 0.5), r"nms: expected boxes of shape \(N, 4\), got \(3, 5\)"),
        (lambda: vision.nms(ts.ones(3, 4), ts.ones(3).double(), 0.5), "nms: dets should have the same type as scores"),
        (lambda: vision.roi_align(ts.ones(1, 1, 4, 4), ts.ones(2, 4), 1.0, 2, 2, 2, True), r"Tensor\[K, 5\]"),
        (lambda: vision.roi_pool(ts.ones(1, 4, 4), ts.ones(2, 5), 1.0, 2, 2), r"\(N, C, H, W\)"),
        (
            lambda: vision.qroi_align(
                ts.zeros(2, 1, 4, 4, dtype=ts.int8), ts.zeros(2, 5, dtype=ts.int8), 1.0, 0, 1.0, 0, 1.0, 2, 2, 2, True
            ),
            "Only one image per batch is allowed .* got 2",
        ),
        (lambda: vision.ps_roi_pool(ts.ones(1, 5, 4, 4), ts.ones(2, 5), 1.0, 2, 2), "multiple of 2 . 2, got 5"),
    ],
)
def test_wrong_arguments_are_told_in_words(call: Any, told: str) -> None:
    with pytest.raises(RuntimeError, match=told):
        call()
