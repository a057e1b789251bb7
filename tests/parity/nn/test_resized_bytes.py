"""Images of bytes resized as torch does, bit by bit: whole weights of 16 bits, rounded once for each dim."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch


def _image(channels: int, height: int, width: int, sharp: bool) -> np.ndarray:
    pixels = np.random.default_rng(height).integers(0, 256, (2, channels, height, width))
    return ((pixels > 127) * 255 if sharp else pixels).astype(np.uint8)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last"])
@pytest.mark.parametrize("plane", [(7, 9), (32, 40), (100, 75), (2, 3), (1, 5)], ids=str)
def test_images_of_bytes(plane: tuple[int, int], layout: str, mode: str, antialias: bool, device: Any) -> None:
    for channels, size in ((1, (5, 11)), (3, (64, 20)), (3, (120, 3)), (5, (32, 40)), (4, plane)):
        for align_corners in (False, True):
            pixels = _image(channels, *plane, sharp=channels == 1)
            made = []
            for module, target in ((torch, "cpu"), (ts, device)):
                given = module.tensor(pixels, device=target).contiguous(memory_format=getattr(module, layout))
                resize = module.nn.functional.interpolate
                made.append(resize(given, size, mode=mode, align_corners=align_corners, antialias=antialias))
            np.testing.assert_array_equal(made[1].cpu().numpy(), made[0].numpy(), err_msg=f"{channels} {size}")


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("recompute", [None, True])
@pytest.mark.parametrize("scale", [0.5, 1.7, (2, 0.3), 1.0], ids=str)
def test_images_of_bytes_by_scale(scale: Any, recompute: Any, mode: str, antialias: bool, device: Any) -> None:
    made = [
        module.nn.functional.interpolate(
            module.tensor(_image(3, 33, 21, sharp=False), device=target),
            scale_factor=scale,
            mode=mode,
            antialias=antialias,
            recompute_scale_factor=recompute,
        )
        for module, target in ((torch, "cpu"), (ts, device))
    ]
    np.testing.assert_array_equal(made[1].cpu().numpy(), made[0].numpy())


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("size", [(5, 11), (64, 20), (32, 40)], ids=str)
def test_lanczos(size: tuple[int, int], dtype: str, device: Any) -> None:
    made = []
    for module, target in ((torch, "cpu"), (ts, device)):
        image = module.tensor(_image(3, 33, 21, sharp=False), device=target).to(getattr(module, dtype))
        made.append(module.nn.functional.interpolate(image, size, mode="lanczos", antialias=True).cpu().numpy())
    if dtype == "uint8":
        np.testing.assert_array_equal(made[1], made[0])
    else:
        np.testing.assert_allclose(made[1], made[0], rtol=0, atol=1e-3 if dtype == "float32" else 1e-10)
