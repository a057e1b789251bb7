"""Resizing, folding, unpooling and bags of embeddings: worked examples and gradients by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack import nn
from tesserack.autograd import gradcheck, gradgradcheck
from tesserack.nn import functional as F

RNG = np.random.default_rng(3)


def random(*shape: int, device: Any) -> ts.Tensor:
    return ts.tensor(RNG.standard_normal(shape), device=device, requires_grad=True)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area", "bilinear", "bicubic"])
def test_same_size_changes_nothing(mode: str, device: ts.device) -> None:
    x = random(2, 3, 4, 5, device=device)
    np.testing.assert_allclose(F.interpolate(x, (4, 5), mode=mode).tolist(), x.tolist(), rtol=1e-12)


@pytest.mark.parametrize(
    ("mode", "shape", "size"),
    [("nearest", (1, 2, 3), 5), ("linear", (1, 2, 3), 5), ("bicubic", (1, 1, 3, 4), (2, 5)), ("area", (1, 1, 5), 3),
     ("trilinear", (1, 1, 2, 2, 3), (3, 1, 4))],
)  # fmt: skip
def test_gradients_of_resizing(mode: str, shape: tuple[int, ...], size: Any, device: ts.device) -> None:
    x = random(*shape, device=device)
    assert gradcheck(lambda t: F.interpolate(t, size, mode=mode), (x,))
    assert gradgradcheck(lambda t: F.interpolate(t, size, mode=mode) ** 2, (x,))


def test_lanczos_weighs_by_a_sinc_within_a_sinc(device: ts.device) -> None:
    impulse = ts.zeros(1, 1, 1, 12, device=device)
    impulse[..., 4] = 1.0
    got = F.interpolate(impulse, (1, 6), mode="lanczos", antialias=True).cpu().numpy()[0, 0, 0]
    position = (np.arange(12)[None] + 0.5 - 2 * (np.arange(6)[:, None] + 0.5)) / 2
    weights = np.where(np.abs(position) < 3, np.sinc(position) * np.sinc(position / 3), 0)
    np.testing.assert_allclose(got, (weights / weights.sum(1, keepdims=True))[:, 4], atol=1e-6)
    x = random(1, 1, 7, 5, device=device)
    assert gradcheck(lambda t: F.interpolate(t, (3, 6), mode="lanczos", antialias=True), (x,))
    for options in ({}, {"antialias": True, "align_corners": True}):
        with pytest.raises(ValueError, match="Lanczos mode requires antialias=True, without align_corners"):
            F.interpolate(x, (3, 6), mode="lanczos", **options)


def test_half_types_are_resized_in_float32(device: ts.device) -> None:
    x = ts.arange(6.0, device=device).reshape(1, 1, 6)
    for dtype in (ts.float16, ts.bfloat16):
        out = F.interpolate(x.to(dtype), 3, mode="linear")
        assert out.dtype == dtype
        assert out.tolist() == [[[0.5, 2.5, 4.5]]]


def test_fold_is_the_transpose_of_unfold(device: ts.device) -> None:
    x = random(2, 3, 5, 6, device=device)
    options: dict[str, Any] = {"kernel_size": (2, 3), "dilation": (1, 2), "padding": (1, 0), "stride": 2}
    columns = F.unfold(x, **options)
    y = random(*columns.shape, device=device)
    left, right = (columns * y).sum(), (x * F.fold(y, (5, 6), **options)).sum()
    assert abs((left - right).item()) < 1e-9
    assert gradgradcheck(lambda t: F.unfold(t, **options) ** 2, (x,))
    assert gradgradcheck(lambda t: F.fold(t, (5, 6), **options) ** 2, (y,))


def test_unfold_and_a_product_are_a_convolution(device: ts.device) -> None:
    x, w = random(2, 3, 6, 5, device=device), random(4, 3, 2, 3, device=device)
    columns = F.unfold(x, (2, 3), padding=1, stride=2)
    found = (w.reshape(4, -1) @ columns).reshape(2, 4, 4, 3)
    np.testing.assert_allclose(found.tolist(), F.conv2d(x, w, padding=1, stride=2).tolist(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [None, (5, 7), (1, 2, 5, 7)])
def test_unpooling_puts_maxima_back(size: Any, device: ts.device) -> None:
    x = random(1, 2, 5, 7, device=device)
    pooled, indices = F.max_pool2d(x, 2, return_indices=True)
    back = F.max_unpool2d(pooled, indices, 2, output_size=size or (5, 7))
    at = back != 0
    assert int(at.sum()) == pooled.numel()
    assert ts.equal(back[at], x[at])
    with pytest.raises(ValueError, match="output_size"):
        F.max_unpool2d(pooled, indices, 2, output_size=(9, 9))


def test_adaptive_maxima_say_where_they_were(device: ts.device) -> None:
    x = random(2, 3, 7, 5, device=device)
    values, indices = nn.AdaptiveMaxPool2d((3, 2), return_indices=True)(x)
    assert ts.equal(x.flatten(2).gather(2, indices.flatten(2)), values.flatten(2))
    assert ts.equal(values, F.adaptive_max_pool2d(x, (3, 2)))
    assert gradcheck(lambda t: F.adaptive_max_pool2d(t, (3, 2), return_indices=True)[0], (x,))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_are_reductions_of_rows(mode: str, device: ts.device) -> None:
    table = random(6, 4, device=device)
    index = ts.tensor([[0, 5, 2], [1, 1, 3]], device=device)
    rows = F.embedding(index, table)
    expected = rows.amax(1) if mode == "max" else getattr(rows, mode)(1)
    for found in (
        F.embedding_bag(index, table, mode=mode),
        F.embedding_bag(index.flatten(), table, ts.tensor([0, 3], device=device), mode=mode),
        F.embedding_bag(
            index.flatten(), table, ts.tensor([0, 3, 6], device=device), mode=mode, include_last_offset=True
        ),
    ):
        np.testing.assert_allclose(found.tolist(), expected.tolist(), rtol=1e-12)
    padded = F.embedding_bag(ts.tensor([[0, 5, 2], [4, 4, 4]], device=device), table, mode=mode, padding_idx=4)
    np.testing.assert_allclose(padded[0].tolist(), expected[0].tolist(), rtol=1e-12)
    assert padded[1].tolist() == [0.0] * 4
    assert gradcheck(lambda t: F.embedding_bag(index[:, 1:], t, mode=mode), (table,))


def test_empty_bags_are_zero(device: ts.device) -> None:
    table = random(3, 2, device=device)
    found = F.embedding_bag(ts.tensor([2], device=device), table, ts.tensor([0, 0, 1], device=device), mode="max")
    assert found.tolist() == [[0.0, 0.0], table[2].tolist(), [0.0, 0.0]]


def test_bag_layer_draws_and_limits_its_rows(device: ts.device) -> None:
    layer = nn.EmbeddingBag(5, 3, max_norm=0.5, padding_idx=-1, device=device)
    assert layer.weight[4].tolist() == [0.0, 0.0, 0.0]
    layer(ts.tensor([[0, 1]], device=device))
    assert float(layer.weight[:2].norm(dim=1).max()) <= 0.5 + 1e-5


def test_a_grid_without_span_is_told():
    with pytest.warns(UserWarning, match="affine_grid"):
        nn.functional.affine_grid(ts.eye(2, 3).unsqueeze(0), (1, 1, 2, 1), align_corners=True)


@pytest.mark.parametrize(
    ("mode", "size"), [("nearest", 3), ("linear", 3), ("bilinear", 4), ("bicubic", 4), ("area", 4)]
)
def test_meta_tensors_of_any_size_are_resized(mode: str, size: int) -> None:
    """What they have is sizes, and no list of positions is made of these."""
    x = ts.empty((10, 3, *[10**8] * (size - 2)), device="meta", requires_grad=True)
    y = nn.functional.interpolate(x, scale_factor=2, mode=mode)
    assert y.is_meta and tuple(y.shape) == (10, 3, *[2 * 10**8] * (size - 2))
    y.backward(ts.empty_like(y))
    assert x.grad is not None and x.grad.shape == x.shape


@pytest.mark.parametrize(("mode", "shape"), [("bilinear", (1, 2, 3, 40)), ("bicubic", (2, 1, 40, 5)),
                                             ("trilinear", (1, 1, 4, 3, 30)), ("area", (1, 2, 3, 40))])  # fmt: skip
def test_what_shrinks_most_is_resized_first(mode, shape):
    # The result is the same in any order of the dims: as of the dims turned around.
    x = ts.from_numpy(RNG.standard_normal(shape))
    options = {} if mode == "area" else {"align_corners": True}
    got = F.interpolate(x, 4, mode=mode, **options)
    turned = (0, 1, *range(x.ndim - 1, 1, -1))
    other = F.interpolate(x.permute(turned), 4, mode=mode, **options).permute(turned)
    ts.testing.assert_close(got, other)
