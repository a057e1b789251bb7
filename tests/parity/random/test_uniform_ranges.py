"""Ranges that uniform_ refuses, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

RANGES = [(0.0, 1e30), (-1e38, 2e38), (-3e38, 3e38), (0.0, 1e39), (-7e4, 1.0), (2.0, 1.0), (0.0, float("inf"))]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_ranges_that_the_dtype_does_not_hold(compare_program: Callable[..., None], dtype: str) -> None:
    def program(m: Any) -> list[str]:
        said = []
        for low, high in RANGES:
            try:
                m.empty(3, dtype=getattr(m, dtype)).uniform_(low, high)
                said.append("done")
            except RuntimeError:
                said.append("refused")
        return said

    compare_program(program)
