"""grid_sample far outside the image, at its borders and where a coordinate is no number."""

from __future__ import annotations

import math

import pytest
import tesserack as ts
import tesserack.nn.functional as F

WIDTH = 5


def reflected(x: float, align: bool) -> float:
    low, high = (0.0, WIDTH - 1.0) if align else (-0.5, WIDTH - 0.5)
    span = high - low
    rest = math.fmod(abs(x - low), 2 * span)
    return min(max(low + (rest if rest <= span else 2 * span - rest), 0.0), WIDTH - 1.0)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("dtype", [ts.float32, ts.float64])
def test_reflections_far_outside(align: bool, dtype: ts.dtype, device: ts.device) -> None:
    """An image of its own column numbers tells where the padding saw a coordinate."""
    image = ts.arange(float(WIDTH), dtype=dtype, device=device).expand(1, 1, 2, WIDTH).contiguous()
    places = [k / 7 for k in range(-60, 61)]
    grid = ts.tensor([[[[g, 0.0] for g in places]]], dtype=dtype, device=device)
    seen = F.grid_sample(image, grid, padding_mode="reflection", align_corners=align).flatten().cpu().tolist()
    scale = (WIDTH - 1) / 2 if align else WIDTH / 2
    wanted = [reflected((g + 1) * scale - (0 if align else 0.5), align) for g in places]
    assert seen == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_coordinates_that_are_none(mode: str, padding: str, device: ts.device) -> None:
    """They read within the image or nothing, whatever else the block holds."""
    image = ts.ones(1, 1, 4, 4, device=device)
    odd = [math.nan, math.inf, -math.inf, 1e30, -1e30, 0.0]
    grid = ts.tensor([[[[g, 0.0] for g in odd * 7]]], device=device)
    out = F.grid_sample(image, grid, mode=mode, padding_mode=padding, align_corners=False)
    assert out.shape == (1, 1, 1, 42) and out.flatten()[5::6].cpu().tolist() == pytest.approx([1.0] * 7)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_neighbours_of_no_weight_are_not_read(device: ts.device, width: int) -> None:
    """At the edges one element of a row counts; what lies beside it may be no number."""
    image = ts.zeros(1, 3, 2, width, device=device)
    image[..., 0] = 1.0
    if width > 1:
        image[:, 1, :, 1:], image[:, 2, :, 1:] = float("nan"), float("inf")
    left = (1 / width - 1) - 1 / width  # halfway between the border and the first element
    grid = ts.tensor([[left, 0.0]] * 300, device=device).reshape(1, 1, 300, 2)
    out = F.grid_sample(image, grid, align_corners=False)
    assert out.flatten().tolist() == pytest.approx([0.5] * 900)
    flipped = F.grid_sample(image.flip(-1), -grid, align_corners=False)
    assert flipped.flatten().tolist() == pytest.approx([0.5] * 900)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_grid_that_is_made_from_the_input(mode: str) -> None:
    def sampled(x: ts.Tensor) -> ts.Tensor:
        return F.grid_sample(x, x.permute(0, 2, 3, 1), mode=mode, align_corners=False).square().sum()

    x = ts.randn(2, 2, 4, 4, dtype=ts.float64, generator=ts.Generator().manual_seed(4)).requires_grad_()
    (plain,) = ts.autograd.grad(sampled(x), x)
    (recorded,) = ts.autograd.grad(sampled(x), x, create_graph=True)
    assert ts.allclose(recorded, plain) and ts.allclose(ts.func.grad(sampled)(x.detach()), plain)
    assert ts.autograd.gradgradcheck(sampled, x)


@pytest.mark.parametrize("narrow", ["input", "grid", "both"])
def test_autocast_samples_in_float32(narrow: str) -> None:
    x, grid = ts.rand(1, 2, 4, 4), ts.rand(1, 3, 3, 2) * 2 - 1
    given = x.bfloat16() if narrow != "grid" else x, grid.bfloat16() if narrow != "input" else grid
    with ts.autocast("cpu", ts.bfloat16):
        got = F.grid_sample(*given, align_corners=True)
    assert ts.equal(got, F.grid_sample(*(t.float() for t in given), align_corners=True))
