"""``testing.assert_close`` of numbers that are not finite, and of two dtypes: it passes where PyTorch's does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tesserack as ts
import torch

PARTS = (1.0, math.inf, -math.inf, math.nan)
REAL = [*PARTS, 1.0005, 0.0, -0.0]
COMPLEX = [complex(a, b) for a in PARTS for b in (1.0, math.inf, math.nan)]


def verdicts(package: Any, values: list[Any], **options: Any) -> list[bool]:
    found = []
    for a in values:
        for b in values:
            try:
                package.testing.assert_close(package.tensor([a]), package.tensor([b]), **options)
                found.append(True)
            except AssertionError:
                found.append(False)
    return found


@pytest.mark.parametrize("values", [REAL, COMPLEX], ids=["real", "complex"])
@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("tolerance", [0.0, 1e-3])
def test_values_that_are_not_finite(values: list[Any], equal_nan: bool, tolerance: float) -> None:
    options = {"equal_nan": equal_nan, "rtol": tolerance, "atol": tolerance}
    assert verdicts(ts, values, **options) == verdicts(torch, values, **options)


@pytest.mark.parametrize("package", [ts, torch])
def test_complex_beside_real(package: Any) -> None:
    z, x = package.tensor([1 + 2j]), package.tensor([1.0])
    with pytest.raises(AssertionError):
        package.testing.assert_close(z, x, check_dtype=False)
    package.testing.assert_close(z.real + 0j, x, check_dtype=False)
