"""Batches of small matrices, which cards factor many at a time: what stands beside what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
import tesserack as ts

LIMIT = {"float32": 1e-6, "float64": 2e-15}


def awkward(count: int, m: int, n: int, dtype: str) -> ts.Tensor:
    """Zeros, zero columns and rows, very small and very large matrices beside ordinary ones."""
    a = ts.randn(count, m, n, dtype=getattr(ts, dtype))
    far = 1e25 if dtype == "float32" else 1e200
    a[1], a[2, :, 0], a[3, 0] = 0, 0, 0
    a[4], a[5] = a[4] / far, a[5] * far
    a[6, 1:] = a[6, :1]
    return a


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m, n", [(1, 1), (3, 3), (8, 8), (16, 16), (16, 5), (5, 16), (4, 1), (1, 4), (17, 3)])
def test_qr_of_many(device: str, m: int, n: int, dtype: str) -> None:
    for count in (8, 37):
        a = awkward(count, m, n, dtype)
        q, r = ts.linalg.qr(a.to(device))
        exact, qn, rn = (t.cpu().numpy().astype(np.float64) for t in (a, q, r))
        size = np.abs(exact).max((1, 2), keepdims=True)
        assert (np.abs(qn @ rn - exact) <= LIMIT[dtype] * m * size).all()
        assert np.abs(qn.swapaxes(1, 2) @ qn - np.eye(min(m, n))).max() < LIMIT[dtype] * m
        assert not np.tril(rn, -1).any()
        alone = [ts.linalg.qr(one.to(device)) for one in a[[0, 4, 5, 7]]]  # signs and all
        for i, (_, one) in zip((0, 4, 5, 7), alone, strict=True):
            assert (np.abs(one.cpu().numpy() - rn[i]) <= 10 * LIMIT[dtype] * m * size[i]).all()


def test_one_that_is_no_number_leaves_the_others(device: str) -> None:
    a = ts.randn(20, 4, 4)
    a[2, 1, 1] = float("nan")
    a[3, 0, 2] = float("inf")
    _, r = ts.linalg.qr(a.to(device))
    bad = r.isnan().any(2).any(1).cpu()
    assert bad[2] and not bad[[0, 1, *range(4, 20)]].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("upper", [False, True])
def test_solving_with_many_factors(device: str, upper: bool, dtype: str) -> None:
    for n in (1, 2, 7, 16, 17):
        a = ts.randn(19, n, n, dtype=getattr(ts, dtype))
        s = a @ a.mT + n * ts.eye(n, dtype=a.dtype)
        factor = ts.linalg.cholesky(s.to(device), upper=upper)
        inverse = ts.cholesky_inverse(factor, upper=upper).cpu()
        assert (inverse @ s - ts.eye(n, dtype=a.dtype)).abs().max() < 30 * LIMIT[dtype]
        b = ts.randn(19, n, 3, dtype=a.dtype)
        x = ts.cholesky_solve(b.to(device), factor, upper=upper).cpu()
        assert (s @ x - b).abs().max() < 60 * LIMIT[dtype]
