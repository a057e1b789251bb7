"""An element's result follows from its own arguments alone: in bits the same wherever it stands, and whatever beside.

Kernels take shorter ways for arguments of some sizes; they may not be taken by neighbours.
"""

from __future__ import annotations

import numpy as np
import pytest
import tesserack as ts
from tesserack import _native
from tesserack.ops.registry import operators
from tesserack.testing import seeds

COUNT = 2100


def elementwise() -> list[tuple[str, int]]:
    """Names of operators of one or two tensors, each element by itself, and how many."""
    found = {}
    for record in _native._operators():
        head = record["schema"].partition("(")[2].partition(")")[0].split(", ")
        tensors = sum(a.startswith(("Tensor ", "Operand ")) for a in head)
        others = [a for a in head if not a.startswith(("Tensor ", "Operand ")) and "=" not in a and a != "*"]
        plain = record["pointwise"] and record["variant"] == "functional" and record["origin"] == "tesserack"
        if plain and 1 <= tensors <= 2 and not others and record["python_name"] in operators():
            found.setdefault(record["python_name"], tensors)
    return sorted(found.items())


def values(dtype: ts.dtype, seed: str) -> ts.Tensor:
    """Of every size, among them the largest, zeros, infinities and NaN."""
    rng = np.random.default_rng(seeds.generator(seed).randrange(2**32))
    sizes = [rng.standard_normal(700) * s for s in (10 ** rng.uniform(-40, 38, 700), 1.0, 300.0)]
    x = np.concatenate([*sizes, [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 0.5]])
    rng.shuffle(x)
    real = ts.tensor(x[:COUNT])
    return (real + 1j * ts.tensor(x[::-1][:COUNT].copy())).to(dtype) if dtype.is_complex else real.to(dtype)


def same(a: ts.Tensor, b: ts.Tensor) -> bool:
    whole = ts.complex128 if a.is_complex() else ts.float64
    return a.dtype == b.dtype and np.array_equal(a.to(whole).numpy(), b.to(whole).numpy(), equal_nan=True)


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.bfloat16, ts.complex64], ids=str)
@pytest.mark.parametrize(("name", "tensors"), elementwise())
def test_results_do_not_depend_on_what_lies_beside(name: str, tensors: int, dtype: ts.dtype, device: str) -> None:
    function = operators()[name]
    given = [values(dtype, f"alone {k}").to(device) for k in range(tensors)]
    try:
        expected = function(*given)
    except (RuntimeError, TypeError, NotImplementedError):
        pytest.skip("not for this dtype")
    order = ts.tensor(np.random.default_rng(0).permutation(COUNT), device=device)
    turned = ts.empty_like(expected)
    turned[order] = function(*(x[order] for x in given))
    parts = ts.cat([function(*part) for part in zip(*(x.split(37) for x in given), strict=True)])
    many = function(*(x.repeat(40) for x in given))[17 * COUNT : 18 * COUNT]
    spread = function(*(ts.stack([x, x], 1)[:, 0] for x in given))
    for other in (turned, parts, many, spread):
        assert same(other.cpu(), expected.cpu())
