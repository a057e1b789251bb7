"""Pooling by any power, and resizing by scales that keep or double a size."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from outcomes import drawn, same

INF = float("inf")


@pytest.mark.parametrize("norm", [INF, -INF, 1.5])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pooling_by_any_power(dims: int, norm: float) -> None:
    def call(m: Any) -> Any:
        x = drawn(m, 2, 3, *[5] * dims)
        found = []
        for options in ({}, {"stride": 1}, {"ceil_mode": True}):
            out = getattr(m.nn, f"LPPool{dims}d")(norm, 2, **options)(x.abs() if norm == 1.5 else x)
            found += [out, *m.autograd.grad(out.sin().sum(), x)]
        return found

    same(call)


@pytest.mark.parametrize(
    ("mode", "dims", "consistent"),
    # PyTorch's gradients of "nearest" along one and three dims are those of other positions than it read.
    [("nearest", 1, False), ("nearest", 2, True), ("nearest", 3, False), ("nearest-exact", 2, True),
     ("linear", 1, True), ("bilinear", 2, True), ("bicubic", 2, True), ("trilinear", 3, True)],
)  # fmt: skip
def test_scales_that_keep_or_double_a_size(mode: str, dims: int, consistent: bool) -> None:
    def call(m: Any) -> Any:
        found = []
        for size, scale in itertools.product((1, 2, 3, 5), (1.1, 1.3, 2.1, 2.3, 0.9)):
            if int(size * scale) == 0:
                continue
            x = drawn(m, 1, 2, size, *[3] * (dims - 1))
            out = m.nn.functional.interpolate(x, scale_factor=(scale, *[2.0] * (dims - 1)), mode=mode)
            found += [out, *(m.autograd.grad(out.sin().sum(), x) if consistent else [])]
        return found

    same(call)
