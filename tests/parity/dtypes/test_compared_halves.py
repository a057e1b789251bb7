"""Comparisons of half dtypes: with numbers and other dtypes as these are once rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

VALUES = [0.3, 0.1, 0.7, 1.0, -2.5, 65504.0, 1e-8, 0.0, float("inf"), float("nan"), 3e38, 257.0, 2049.0, 6e-8]
NUMBERS = [*VALUES, 65519.0, 65520.0, -1e-7, 2, 2049, 3.4e38, 1.0009765625, 0.50048828125, 1e-40]


def others(m: Any, x: Any, number: Any) -> list[Any]:
    """A number, and what holds it in another dtype, alone and for each element."""
    wide = m.tensor(number, dtype=m.float32)
    return [number, np.float32(number), wide, m.tensor(number), wide.expand(len(VALUES)), m.tensor([number] * 2)[0]]


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_with_numbers(dtype: str, name: str) -> None:
    with np.errstate(over="ignore"):
        ours, theirs = (m.tensor(VALUES).to(getattr(m, dtype)) for m in (ts, torch))
        strided = [x.repeat_interleave(2)[::2] for x in (ours, theirs)]
        for number in NUMBERS:
            for x, y in ((ours, theirs), strided):
                for a, b in zip(others(ts, x, number), others(torch, y, number), strict=True):
                    assert getattr(ts, name)(x, a).tolist() == getattr(torch, name)(y, b).tolist(), (number, a)
            assert (number < ours).tolist() == (number < theirs).tolist()


def test_what_was_made_of_a_number_equals_it() -> None:
    for dtype in (ts.float16, ts.bfloat16):
        x = ts.full((3,), 0.1, dtype=dtype)
        assert bool((x == 0.1).all()) and not bool((x < 0.1).any() | (x > 0.1).any())
        assert ts.where(x == 0.1, 1.0, 0.0).tolist() == [1.0] * 3
        assert ts.compile(lambda x: x == 0.1)(x).tolist() == [True] * 3
