"""Arithmetic at its ends: special values, sums of small integers, dims of size one that are contracted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts

Program = Callable[[Any], Any]
Run = Callable[[Program], None]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("shapes", "dims"),
    [(((2, 1), (3, 4)), 1), (((2, 3), (1, 4)), 1), (((2, 3, 1), (1, 4, 2)), ([1, 2], [0, 1])), (((3, 1), (1, 3)), 2)],
)
def test_contracted_dims_of_size_one_broadcast(compare_program: Run, shapes: Any, dims: Any) -> None:
    def program(m: Any) -> Any:
        a, b = (m.arange(float(np.prod(s))).reshape(s).requires_grad_() for s in shapes)
        y = m.tensordot(a, b, dims=dims)
        return y, m.autograd.grad((y * y).sum(), [a, b])

    compare_program(program)


@pytest.mark.parametrize("dtype", [ts.int8, ts.uint8, ts.int16])
def test_integrals_of_small_integers_do_not_wrap(dtype: ts.dtype) -> None:
    y, x = [100, 120, 90], [0, 50, 120]
    small, at = ts.tensor(y, dtype=dtype), ts.tensor(x, dtype=dtype)
    assert ts.trapezoid(small).item() == 215.0 and ts.trapezoid(small, dx=2).item() == 430.0
    assert ts.trapezoid(small, at).item() == 12850.0
    assert ts.cumulative_trapezoid(small).tolist() == [110.0, 215.0]
    assert ts.cumulative_trapezoid(small, at).tolist() == [5500.0, 12850.0]


# The special cases of the Array API standard: operands and results, NaN where it says so.
SPECIAL = {
    "atan2": [
        (INF, INF, np.pi / 4), (INF, -INF, 3 * np.pi / 4), (-INF, INF, -np.pi / 4), (-INF, -INF, -3 * np.pi / 4),
        (INF, 1.0, np.pi / 2), (1.0, -INF, np.pi), (-1.0, -INF, -np.pi), (1.0, INF, 0.0), (-1.0, INF, -0.0),
        (0.0, -0.0, np.pi), (-0.0, -0.0, -np.pi), (NAN, 1.0, NAN), (0.0, 0.0, 0.0), (-0.0, 1.0, -0.0),
    ],
    "floor_divide": [
        (INF, INF, NAN), (0.0, 0.0, NAN), (INF, 2.0, (INF, NAN)), (-INF, 2.0, (-INF, NAN)), (1.0, INF, 0.0),
        (-1.0, INF, -1.0), (1.0, -INF, -1.0), (-1.0, -INF, 0.0), (NAN, 1.0, NAN), (1.0, NAN, NAN), (7.0, -2.0, -4.0),
    ],
    "remainder": [
        (INF, INF, NAN), (INF, 2.0, NAN), (-INF, 2.0, NAN), (1.0, INF, 1.0), (1.0, -INF, -INF), (-1.0, INF, INF),
        (-1.0, -INF, -1.0), (1.0, 0.0, NAN), (0.0, 2.0, 0.0), (-0.0, 2.0, 0.0), (0.0, -2.0, -0.0), (NAN, 1.0, NAN),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("dtype", [ts.float32, ts.float64])
def test_special_values_of_the_array_api_standard(name: str, dtype: ts.dtype) -> None:
    for a, b, wanted in SPECIAL[name]:
        for length in (1, 40):  # vectors and what is left of them
            left, right = (ts.full((length,), v, dtype=dtype) for v in (a, b))
            found = getattr(ts, name)(left, right)[-1].item()
            allowed = wanted if isinstance(wanted, tuple) else (wanted,)
            good = any((found != found and w != w) or np.isclose(found, w, rtol=1e-6, atol=0) for w in allowed)
            assert good, (name, a, b, found)
            if wanted == 0.0 and INF in (abs(a), abs(b)):
                assert np.signbit(found) == np.signbit(wanted), (name, a, b, found)
