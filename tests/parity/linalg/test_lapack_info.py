"""What factorisations say of matrices that have no factors, or are made of no numbers, is what PyTorch says."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tesserack as ts
import torch

NAN = math.nan
BLOCKS = {
    "nan first": [[NAN, 0], [0, 1]], "nan second": [[1, 0], [0, NAN]], "nan below": [[1, 0], [NAN, 1]],
    "nan above": [[1, NAN], [0, 1]], "all nan": [[NAN, NAN], [NAN, NAN]], "negative": [[1, 0], [0, -1]],
    "zero": [[0, 0], [0, 0]], "singular": [[1, 1], [1, 1]],
}  # fmt: skip
CALLS = [
    "cholesky_ex(a)", "cholesky_ex(a, upper=True)", "inv_ex(a)", "lu_factor_ex(a)", "ldl_factor_ex(a)",
    "solve_ex(a, a)",
]  # fmt: skip


def within(block: list[list[float]], n: int) -> list[list[float]]:
    """An identity with the block in its middle."""
    matrix = [[float(i == j) for j in range(n)] for i in range(n)]
    at = (n - 2) // 2
    for i in range(2):
        for j in range(2):
            matrix[at + i][at + j] = block[i][j]
    return matrix


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("call", CALLS)
def test_info(call: str, dtype: str) -> None:
    # MKL's ldl pivots by what is not a number, LAPACK's own does not: the matrices differ from there on.
    blocks = [b for name, b in BLOCKS.items() if "ldl" not in call or name not in ("nan below", "all nan")]
    for n in (2, 6, 40):
        batch = [within(block, n) for block in blocks] * (3 if n == 6 else 1)
        found = [eval(f"m.linalg.{call}.info", {"m": m, "a": m.tensor(batch, dtype=getattr(m, dtype))}).tolist()
                 for m in (ts, torch)]  # fmt: skip
        assert found[0] == found[1], n


def test_eigh_reads_one_triangle() -> None:
    matrix: list[Any] = [[2.0, NAN], [0.5, 1.0]]
    expected = torch.linalg.eigvalsh(torch.tensor(matrix))
    assert ts.linalg.eigvalsh(ts.tensor(matrix)).tolist() == pytest.approx(expected.tolist())
    upper = [list(row) for row in zip(*matrix, strict=True)]
    assert ts.linalg.eigvalsh(ts.tensor(upper), UPLO="U").tolist() == pytest.approx(expected.tolist())
    with pytest.raises(RuntimeError, match="non-finite"):
        ts.linalg.eigvalsh(ts.tensor(upper))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "float32", "float64", "int64"])
def test_multinomial_takes_an_out_of_int64_alone(dtype: str) -> None:
    for m in (torch, ts):
        out = m.empty(3, dtype=getattr(m, dtype))
        if dtype == "int64":
            assert m.multinomial(m.ones(4), 3, out=out) is out
        else:
            with pytest.raises(RuntimeError, match="expect"):
                m.multinomial(m.ones(4), 3, out=out)
