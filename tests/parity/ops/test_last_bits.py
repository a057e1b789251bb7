"""Where PyTorch's last bit shows, since what is computed here is rounded to integers later on: it is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tesserack
import torch

CPUINFO = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
HAS_FMA = torch.backends.cpu.get_cpu_capability() != "DEFAULT"
pytestmark = pytest.mark.skipif(not HAS_FMA, reason="torch rounds products here before it adds them")


@pytest.mark.parametrize(
    "span",  # magnitudes of augmentations, coordinates of pictures
    [(0, 0.9, 10), (0, 0.3, 11), (0, 0.99, 31), (0, 150 / 331 * 56, 31), (-1, 1, 57), (-27.5, 27.5, 56), (3, 4, 1)],
)
def test_evenly_spaced_numbers(span: Any) -> None:
    ours, theirs = (m.linspace(*span).numpy() for m in (tesserack, torch))
    np.testing.assert_array_equal(ours, theirs)


THETAS = [[[1.0, 0.0667, 0.3], [0.02, 1.0, -0.2]], [[1.0, 1 / 15, 0.0], [0.0, 1.0, 0.0]]]


def grid_of(m: Any, theta: Any, align_corners: bool) -> Any:
    return m.nn.functional.affine_grid(m.tensor([theta]), (1, 3, 48, 56), align_corners=align_corners).numpy()


@pytest.mark.skipif("GenuineIntel" not in CPUINFO, reason="oneMKL, of which torch's grids are, rounds otherwise there")
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("theta", THETAS)
def test_grids(theta: Any, align: bool) -> None:
    np.testing.assert_array_equal(*(grid_of(m, theta, align) for m in (tesserack, torch)))


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("theta", THETAS)
def test_pictures_between_their_points(theta: Any, align: bool, padding: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 3, 48, 56)).astype(np.float32)
    arrays, words = (pixels, grid_of(torch, theta, align)), {"align_corners": align, "padding_mode": padding}
    ours, theirs = (
        m.nn.functional.grid_sample(*map(m.from_numpy, arrays), **words).numpy() for m in (tesserack, torch)
    )
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "call",
    [
        lambda m, a, b: m.add(a, b, alpha=0.3),
        lambda m, a, b: m.sub(a, b, alpha=0.3),
        lambda m, a, b: m.rsub(a, b, alpha=-0.7),
        lambda m, a, b: a.clone().add_(b, alpha=-0.01),
        lambda m, a, b: a.t().sub(b.t(), alpha=3),
        lambda m, a, b: m._foreach_add([a], [b], alpha=0.3)[0],
        lambda m, a, b: m.add(a, 2.5, alpha=0.3),
    ],
    ids=["add", "sub", "rsub", "in place", "transposed", "foreach", "a number"],
)
def test_a_scaled_sum_is_rounded_once(call: Any, dtype: str) -> None:
    arrays = np.random.default_rng(0).standard_normal((2, 37, 11)).astype(dtype)
    ours, theirs = (call(m, m.from_numpy(arrays[0]), m.from_numpy(arrays[1])).numpy() for m in (tesserack, torch))
    np.testing.assert_array_equal(ours, theirs)
