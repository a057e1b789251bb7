"""Products of half types that are scaled and added to, beside torch's: rounded once, however they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

SHAPES = {
    "addmm": [
        ((5,), (4, 3), (3, 5)),
        ((4, 5), (4, 30), (30, 5)),
        ((4, 1), (4, 8), (8, 1)),
        ((6, 40), (6, 70), (70, 40)),
    ],
    "baddbmm": [((2, 4, 5), (2, 4, 3), (2, 3, 5)), ((5,), (2, 4, 3), (2, 3, 5)), ((2, 1, 5), (2, 40, 3), (2, 3, 5))],
}
CASES = [(name, shapes) for name, each in SHAPES.items() for shapes in each]
# A sum of so many products in float32 and one rounding to the dtype.
TOLERANCE = {"float16": 2**-11 * 1.01, "bfloat16": 2**-8 * 1.01}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("factors", [(1, 1), (0, 0.5), (1, 0.5), (0.25, 1), (-4.775, 2.0315)])
@pytest.mark.parametrize(("name", "shapes"), CASES, ids=lambda value: str(value).replace(" ", ""))
def test_scaled_products_are_rounded_once(
    name: str, shapes: Any, factors: tuple[float, float], dtype: str, device: Any
) -> None:
    if ts.device(device).type != "cpu":
        pytest.skip("cards round a product before it is scaled, as their own libraries may")
    rng = np.random.default_rng(7)
    beta, alpha = factors
    parts = [torch.from_numpy(rng.standard_normal(shape)).to(getattr(torch, dtype)) for shape in shapes]
    exact = [part.double() for part in parts]
    if beta == 0:
        parts[0].fill_(float("nan"))
        exact[0].zero_()
    ours = [ts.tensor(part.float().numpy(), device=device).to(getattr(ts, dtype)) for part in parts]
    want = getattr(torch, name)(*exact, beta=beta, alpha=alpha).numpy()
    scale = abs(beta) * np.abs(exact[0].numpy()) + abs(alpha) * (exact[1].abs() @ exact[2].abs()).numpy()
    lying = [ours[0], *(part.mT.contiguous().mT for part in ours[1:])]
    for given in (ours, lying):
        got = getattr(ts, name)(*given, beta=beta, alpha=alpha)
        assert got.dtype == getattr(ts, dtype)
        error = np.abs(got.double().cpu().numpy() - want)
        assert (error <= TOLERANCE[dtype] * np.abs(want) + 1e-5 * scale).all()
