"""Boxes: what overlaps what."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["OPERATORS", "box_iou_rotated", "nms"]

ROWS = 256  # boxes compared with all others at once


def _check(boxes: Tensor, scores: Tensor) -> None:
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise RuntimeError(f"nms: expected boxes of shape (N, 4), got {tuple(boxes.shape)}")
    if scores.ndim != 1 or scores.shape[0] != boxes.shape[0]:
        raise RuntimeError(f"nms: expected a score for each of {boxes.shape[0]} boxes, got shape {tuple(scores.shape)}")
    if boxes.dtype != scores.dtype:
        raise RuntimeError(f"nms: dets should have the same type as scores, got {boxes.dtype} and {scores.dtype}")


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The indices of boxes that overlap no better one by more than the threshold, best first.

    ``dets`` is (N, 4) as x1, y1, x2, y2, ``scores`` (N). Comparisons run on the device, a block of rows at a time; the
    greedy choice reads them on the host.

    >>> import tesserack as ts
    >>> nms(ts.tensor([[0., 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]), ts.tensor([0.9, 0.8, 0.7]), 0.5)
    tensor([0, 2])
    """
    _check(dets, scores)
    order = scores.argsort(descending=True, stable=True)
    boxes = dets[order]
    wide = boxes.float() if boxes.dtype in (ts.float16, ts.bfloat16) else boxes
    areas = (wide[:, 2] - wide[:, 0]) * (wide[:, 3] - wide[:, 1])
    kept, suppressed = [], 0
    for first in range(0, len(wide), ROWS):
        block = wide[first : first + ROWS]
        low = ts.maximum(block[:, None, :2], wide[None, :, :2])
        high = ts.minimum(block[:, None, 2:], wide[None, :, 2:])
        inter = (high - low).clamp(min=0).prod(2)
        over = inter / (areas[first : first + ROWS, None] + areas[None] - inter) > iou_threshold
        for row, beaten in enumerate(_bits(over)):
            index = first + row
            if not suppressed >> (8 * index) & 1:
                kept.append(index)
                suppressed |= beaten
    return order[ts.tensor(kept, dtype=ts.int64, device=order.device)]


def qnms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """:func:`nms` of quantized boxes: their whole numbers have the same order and overlaps."""
    return nms(dets.float(), scores.float(), iou_threshold)


def nms_of_quantized(dets: Any, scores: Any, iou_threshold: float) -> Tensor:
    """:func:`nms` of tensors with a scale and a zero point."""
    return nms(dets.dequantize(), scores.dequantize(), iou_threshold)


def _bits(rows: Tensor) -> list[int]:
    """Each row of truths as one number, a byte for each column."""
    data, width = rows.to(ts.uint8).cpu().contiguous().numpy().tobytes(), rows.shape[1]
    return [int.from_bytes(data[k * width : (k + 1) * width], "little") for k in range(rows.shape[0])]


def _corners(boxes: Tensor) -> Tensor:
    """(N, 5) as cx, cy, w, h, degrees: the corners, (N, 4, 2), in one turn."""
    angle = boxes[:, 4] * (math.pi / 180)
    x, y = ts.stack([angle.cos(), -angle.sin()], 1) * 0.5, ts.stack([angle.sin(), angle.cos()], 1) * 0.5
    w, h = x * boxes[:, 2:3], y * boxes[:, 3:4]
    return ts.stack([w + h, h - w, -w - h, w - h], 1) + boxes[:, None, :2]


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _inside(points: Tensor, corners: Tensor) -> Tensor:
    """Which of (M, P, 2) lie within (M, 4, 2)."""
    ab, ad = corners[:, 1] - corners[:, 0], corners[:, 3] - corners[:, 0]
    ap = points - corners[:, :1]
    along, across = (ap * ab[:, None]).sum(-1), (ap * ad[:, None]).sum(-1)
    slack = 1e-6
    return (
        (along >= -slack)
        & (along <= (ab * ab).sum(-1)[:, None] + slack)
        & (across >= -slack)
        & (across <= (ad * ad).sum(-1)[:, None] + slack)
    )


def _intersections(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Where edges of (M, 4, 2) meet those of (M, 4, 2): 16 points each, and which are there."""
    va, vb = a.roll(-1, 1) - a, b.roll(-1, 1) - b
    va, vb, start = va[:, :, None], vb[:, None], b[:, None] - a[:, :, None]
    turn = _cross(va, vb)
    parallel = turn.abs() <= 1e-14
    safe = ts.where(parallel, ts.ones_like(turn), turn)
    t, u = _cross(start, vb) / safe, _cross(start, va) / safe
    meets = ~parallel & (t >= 0) & (t <= 1) & (u >= 0) & (u <= 1)
    points = a[:, :, None] + va * t[..., None]
    return points.flatten(1, 2), meets.flatten(1)


def _area_of_hull(points: Tensor, there: Tensor) -> Tensor:
    """The area of the convex polygon of those of (M, P, 2) that are there: sorted by angle about their middle."""
    count = there.sum(1, keepdim=True)
    middle = (points * there[..., None]).sum(1) / count.clamp(min=1)
    spokes = (points - middle[:, None]) * there[..., None]
    angle = ts.where(there, ts.atan2(spokes[..., 1], spokes[..., 0]), ts.full_like(spokes[..., 0], 10.0))
    order = angle.argsort(1)
    ordered = spokes.gather(1, order[..., None].expand_as(spokes))
    valid = there.gather(1, order)
    # What is not there lies on the first corner, and adds nothing.
    ordered = ts.where(valid[..., None], ordered, ordered[:, :1].expand_as(ordered))
    area = _cross(ordered, ordered.roll(-1, 1)).sum(1).abs() * 0.5
    return ts.where(count[:, 0] >= 3, area, ts.zeros_like(area))


def box_iou_rotated(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """(N, 5) and (M, 5) as cx, cy, w, h, degrees counterclockwise: (N, M) of intersection over union."""
    for boxes in (boxes1, boxes2):
        if boxes.ndim != 2 or boxes.shape[1] != 5:
            raise RuntimeError(f"box_iou_rotated: expected boxes of shape (N, 5), got {tuple(boxes.shape)}")
    n, m = len(boxes1), len(boxes2)
    if n * m == 0:
        return boxes1.new_zeros((n, m))
    one, two = boxes1.double(), boxes2.double()
    middle = one[:, None, :2].add(two[None, :, :2]).mul(0.5).reshape(-1, 1, 2)  # near zero nothing cancels
    a = _corners(one)[:, None].expand(n, m, 4, 2).reshape(-1, 4, 2) - middle
    b = _corners(two)[None].expand(n, m, 4, 2).reshape(-1, 4, 2) - middle
    crossing, meets = _intersections(a, b)
    points = ts.cat([a, b, crossing], 1)
    there = ts.cat([_inside(a, b), _inside(b, a), meets], 1)
    inter = _area_of_hull(points, there).view(n, m)
    areas = (one[:, 2] * one[:, 3])[:, None] + (two[:, 2] * two[:, 3])[None]
    out: Tensor = (inter / (areas - inter)).nan_to_num(0.0).to(boxes1.dtype)
    return out


OPERATORS: dict[str, Any] = {
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": nms,
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": qnms,
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor": box_iou_rotated,
}
