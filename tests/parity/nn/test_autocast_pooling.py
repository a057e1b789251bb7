"""Pooling of blocks within a region on the cpu: in float32, as PyTorch has it there."""

from __future__ import annotations

import pytest
import tesserack
import torch


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["avg_pool3d", "adaptive_avg_pool3d", "max_pool3d", "avg_pool2d", "max_pool2d"])
def test_dtypes(name, dtype):
    found = []
    for lib in (tesserack, torch):
        x = lib.ones((1, 2, 4, 4, 4)[: 5 if name.endswith("3d") else 4], dtype=getattr(lib, dtype))
        with lib.autocast("cpu", dtype=lib.bfloat16):
            y = getattr(lib.nn.functional, name)(x, 2)
        found.append(str(y.dtype).partition(".")[2])
    assert found[0] == found[1]


def test_outside_of_a_region_nothing_changes():
    x = tesserack.ones(1, 2, 4, 4, 4, dtype=tesserack.bfloat16)
    assert tesserack.nn.functional.avg_pool3d(x, 2).dtype is tesserack.bfloat16
    with tesserack.autocast("cpu", enabled=False):
        assert tesserack.nn.functional.max_pool3d(x, 2).dtype is tesserack.bfloat16


CALLS = {
    "adaptive_max_pool3d": lambda F, x, lib: F.adaptive_max_pool3d(x.reshape(1, 1, 4, 4, 4), 2),
    "adaptive_max_pool2d": lambda F, x, lib: F.adaptive_max_pool2d(x.reshape(1, 1, 8, 8), 2),
    "fractional_max_pool2d": lambda F, x, lib: F.fractional_max_pool2d(x.reshape(1, 1, 8, 8), 2, output_size=3),
    "fractional_max_pool3d": lambda F, x, lib: F.fractional_max_pool3d(x.reshape(1, 1, 4, 4, 4), 2, output_size=2),
    "multi_margin_loss": lambda F, x, lib: F.multi_margin_loss(x.reshape(8, 8), lib.arange(8)),
    "multilabel_margin_loss": lambda F, x, lib: F.multilabel_margin_loss(
        x.reshape(8, 8), lib.zeros(8, 8, dtype=lib.int64)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_that_run_wide(name):
    found = []
    for lib in (tesserack, torch):
        x = lib.arange(64.0).to(lib.bfloat16)
        with lib.autocast("cpu", dtype=lib.bfloat16):
            found.append(str(CALLS[name](lib.nn.functional, x, lib).dtype).partition(".")[2])
    assert found[0] == found[1]
