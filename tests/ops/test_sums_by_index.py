"""Sums and means by index in narrow dtypes: they count on where the dtype itself stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack.nn import functional as F

N = 3000  # float16 stops at 2048 when ones are added up, bfloat16 at 256
HALVES = [ts.float16, ts.bfloat16]


class Case:
    """Ones, and places that are all the first."""

    def __init__(self, dtype: ts.dtype, device: ts.device) -> None:
        self.ones = ts.ones(N, dtype=dtype, device=device)
        self.at = ts.zeros(N, dtype=ts.int64, device=device)
        self.rows = self.ones[:, None].expand(N, 3)

    def zeros(self, *sizes: int) -> ts.Tensor:
        return self.ones.new_zeros(sizes or (1,))


SUMS: dict[str, Callable[[Case], Any]] = {
    "scatter_add": lambda c: c.zeros().scatter_add(0, c.at, c.ones),
    "scatter_add_": lambda c: c.zeros().scatter_add_(0, c.at, c.ones),
    "scatter_add into much": lambda c: c.zeros(20 * N).scatter_add(0, c.at, c.ones),
    "scatter reduce": lambda c: c.zeros().scatter(0, c.at, c.ones, reduce="add"),
    "scatter_reduce": lambda c: c.zeros().scatter_reduce(0, c.at, c.ones, "sum"),
    "index_add": lambda c: c.zeros().index_add(0, c.at, c.ones),
    "index_add of rows": lambda c: c.zeros(2, 3).index_add(0, c.at, c.rows),
    "index_add_ into much": lambda c: c.zeros(20 * N, 3).index_add_(0, c.at, c.rows),
    "index_put": lambda c: c.zeros().index_put((c.at,), c.ones, True),
    "index_put of two": lambda c: c.zeros(2, 2).index_put((c.at, c.at), c.ones, True),
    "put_": lambda c: c.zeros().put_(c.at, c.ones, True),
    "histc": lambda c: ts.histc(c.ones, 1, 0, 2),
    "segment_reduce": lambda c: ts.segment_reduce(c.ones, "sum", lengths=ts.tensor([N], device=c.ones.device)),
    "coalesce": lambda c: ts.sparse_coo_tensor(c.at[None], c.ones, (1,)).coalesce().values(),
    "to_dense": lambda c: ts.sparse_coo_tensor(c.at[None], c.ones, (1,)).to_dense(),
}
GRADIENTS: dict[str, Callable[[ts.Tensor, ts.Tensor], ts.Tensor]] = {
    "gather": lambda x, at: x.gather(0, at),
    "take": ts.take,
    "take_along_dim": lambda x, at: x.take_along_dim(at, 0),
    "index_select": lambda x, at: x.index_select(0, at),
    "index": lambda x, at: x[at],
    "as_strided": lambda x, at: x.as_strided((N,), (0,)),
    "expand": lambda x, at: x.expand(N),
    "nearest": lambda x, at: F.interpolate(x.reshape(1, 1, 1), size=N),
    "embedding": lambda x, at: F.embedding(at, x.reshape(1, 1)),
    "embedding_bag": lambda x, at: F.embedding_bag(at[None], x.reshape(1, 1), mode="sum"),
}
MEANS: dict[str, Callable[[Case], Any]] = {
    "scatter_reduce": lambda c: c.zeros().scatter_reduce(0, c.at, 60 * c.ones, "mean", include_self=False),
    "index_reduce": lambda c: c.zeros().index_reduce(0, c.at, 60 * c.ones, "mean", include_self=False),
    "segment_reduce": lambda c: ts.segment_reduce(60 * c.ones, "mean", lengths=ts.tensor([N], device=c.ones.device)),
    "embedding_bag": lambda c: F.embedding_bag(c.at, (60 * c.ones)[:1, None], c.at[:1], mode="mean"),
}


def _held(value: float, dtype: ts.dtype) -> float:
    return ts.tensor(value, dtype=dtype).item()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("way", SUMS)
def test_ones_add_up(way: str, dtype: ts.dtype, device: ts.device) -> None:
    """To what the dtype holds of their number."""
    assert SUMS[way](Case(dtype, device)).flatten()[0].item() == _held(N, dtype)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("way", GRADIENTS)
def test_gradients_add_up(way: str, dtype: ts.dtype, device: ts.device) -> None:
    """What was read often gets all its gradients."""
    x = ts.ones(1, dtype=dtype, device=device, requires_grad=True)
    GRADIENTS[way](x, ts.zeros(N, dtype=ts.int64, device=device)).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == _held(N, dtype)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("way", MEANS)
def test_means_of_equal_values(way: str, dtype: ts.dtype, device: ts.device) -> None:
    """Neither the sum, beyond what float16 holds, nor the number is rounded on the way."""
    assert MEANS[way](Case(dtype, device)).item() == 60


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gradients_of_a_mean(dtype: ts.dtype, device: ts.device) -> None:
    """They share by the true number, those of extremes too."""
    c = Case(dtype, device)
    for reduce in ("mean", "amax"):
        x = c.zeros().requires_grad_()
        c.zeros().scatter_reduce(0, c.at, x.expand(N), reduce, include_self=False).sum().backward()
        assert x.grad is not None
        assert x.grad.item() == pytest.approx(1, rel=0.01), reduce


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_few_writes_keep_all_else(dtype: ts.dtype, device: ts.device) -> None:
    """Where few elements of many are touched, the others keep their bits, and repeats meet."""
    x = ts.linspace(-3, 3, 400, device=device).to(dtype).reshape(100, 4)
    at = ts.tensor([7, 3, 7, 7], device=device)
    rows = ts.arange(16.0, device=device).reshape(4, 4).to(dtype)
    want = x.double().index_add(0, at, rows.double()).to(dtype)
    assert (x.index_add(0, at, rows) == want).all()
    assert (x.clone().index_add_(0, at, rows) == want).all()
    spread = at[:, None].expand(4, 4)
    assert (x.scatter_add(0, spread, rows) == want).all()
    assert (x.scatter_reduce(0, spread, rows, "sum") == want).all()


@pytest.mark.parametrize("way", ["scatter_add", "index_add", "bincount", "histc", "histogram", "index", "embedding"])
def test_float32_counts_beyond_its_whole_numbers(way: str, device: ts.device) -> None:
    """float32 has all whole numbers up to 2^24, where adding ones one by one stops."""
    n = 2**24 + 2**10
    at, ones = ts.zeros(n, dtype=ts.int32 if way == "embedding" else ts.int64, device=device), ts.ones(n, device=device)
    x = ts.zeros(1, 1, device=device, requires_grad=True)
    calls: dict[str, Callable[[], Any]] = {
        "scatter_add": lambda: ts.zeros(1, device=device).scatter_add(0, at, ones),
        "index_add": lambda: ts.zeros(1, 1, device=device).index_add(0, at, ones[:, None]),
        "bincount": lambda: ts.bincount(at, weights=ones),
        "histc": lambda: ts.histc(ones, 1, 0, 2),
        "histogram": lambda: ts.histogram(ones, 1, range=(0.0, 2.0)).hist,
        "index": lambda: ts.autograd.grad(x[at].sum(), x)[0],
        "embedding": lambda: ts.autograd.grad(F.embedding(at, x).sum(), x)[0],
    }
    assert calls[way]().item() == n
