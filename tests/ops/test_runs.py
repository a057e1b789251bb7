"""Runs of equal neighbours: unique_consecutive and unique beside a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tesserack as ts

SIZES = (1, 2, 31, 32, 33, 64, 65, 500)


def plain_runs(values: list[float]) -> tuple[list[float], list[int], list[int]]:
    firsts: list[float] = []
    places: list[int] = []
    counts: list[int] = []
    for k, value in enumerate(values):
        if k == 0 or value != values[k - 1]:
            firsts.append(value)
            counts.append(0)
        counts[-1] += 1
        places.append(len(firsts) - 1)
    return firsts, places, counts


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("distinct", [1, 2, 40])
def test_runs_of_equals(dtype: str, distinct: int, device: ts.device) -> None:
    for size in SIZES:
        numbers = np.random.default_rng(size).integers(0, distinct, size)
        for order in (numbers, np.sort(numbers)):
            x = ts.tensor(order, device=device).to(getattr(ts, dtype))
            firsts, places, counts = plain_runs(x.cpu().tolist())
            values, inverse, lengths = ts.unique_consecutive(x, return_inverse=True, return_counts=True)
            assert values.cpu().tolist() == firsts and values.dtype == x.dtype
            assert inverse.cpu().tolist() == places
            assert lengths.cpu().tolist() == counts
            alone, sizes = ts.unique_consecutive(x, return_counts=True)
            assert alone.cpu().tolist() == firsts and sizes.cpu().tolist() == counts
            assert ts.unique(x).cpu().tolist() == sorted(set(firsts))


def test_nan_is_a_run_of_its_own_and_zeros_are_one(device: ts.device) -> None:
    x = ts.tensor([math.nan, math.nan, 0.0, -0.0, 0.0, 1.0], device=device)
    values, inverse, counts = ts.unique_consecutive(x, return_inverse=True, return_counts=True)
    assert inverse.cpu().tolist() == [0, 1, 2, 2, 2, 3] and counts.cpu().tolist() == [1, 1, 3, 1]
    assert math.copysign(1, values.cpu()[2].item()) == 1


def test_few_runs_do_not_hold_the_memory_of_all() -> None:
    values = ts.unique_consecutive(ts.zeros(100_000))
    assert values.untyped_storage().nbytes() < 1000
