"""Joins, sums by index and transposed copies on OpenCL, over several items and their borders, beside the cpu's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack.nn import functional as F

DTYPES = (ts.float32, ts.float16, ts.uint8, ts.int64)


def whole(*shape: int, dtype: Any = ts.float32, below: int = 8) -> ts.Tensor:
    """Whole numbers, of which sums in any order are exact."""
    return ts.randint(0, below, shape).to(dtype)


def alike(function: Callable[..., ts.Tensor], *inputs: ts.Tensor) -> None:
    expected, found = function(*inputs), function(*(x.to("opencl") for x in inputs))
    assert found.device.type == "opencl"
    assert found.dtype == expected.dtype
    assert ts.equal(found.cpu(), expected)


@pytest.fixture(autouse=True)
def _seed() -> None:
    ts.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_joins_over_several_items(dim: int, dtype: Any) -> None:
    shapes = [[7, 33, 71] for _ in range(3)]
    for shape, size in zip(shapes, (1, 40, 9), strict=True):
        shape[dim] = size
    alike(lambda *xs: ts.cat(xs, dim), *(whole(*shape, dtype=dtype) for shape in shapes))


def test_joins_of_strided_tensors() -> None:
    x, y = whole(90, 70), whole(70, 90)
    alike(lambda x, y: ts.cat([x.t(), y[:, ::2].repeat(1, 2)], 1), x, y)
    alike(lambda x, y: ts.stack([x, y.t()], -1), x, y)
    alike(lambda x, y: ts.cat([x[:, :1], y.t()[:, 5:6], x.expand(2, 90, 70)[1]], 1), x, y)


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.float16, ts.int64, ts.uint8], ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_slices_added_by_index(dim: int, dtype: Any) -> None:
    shape = [5, 19, 67]
    given = list(shape)
    given[dim] = 11
    x, source, index = whole(*shape, dtype=dtype), whole(*given, dtype=dtype), whole(11, below=shape[dim]).long()
    alike(lambda x, i, s: x.index_add(dim, i, s), x, index, source)
    spread = whole(*given, below=shape[dim]).long()
    alike(lambda x, i, s: x.scatter_add(dim, i, s), x, spread, source)
    if dtype != ts.float16:
        alike(lambda x, i, s: x.scatter_reduce(dim, i, s, "amax"), x, spread, source)
    alike(lambda x, i, s: x.transpose(0, 2).index_add(2 - dim, i, s.transpose(0, 2)), x, index, source)


def test_few_numbers_take_many() -> None:
    x, index, source = whole(13), whole(5000, below=13).long(), whole(5000)
    alike(lambda x, i, s: x.scatter_add(0, i, s), x, index, source)
    alike(lambda x, i, s: x.index_put((i,), s, accumulate=True), x, index, source)
    alike(lambda x, i, s: x.scatter_add(0, i[:1], s[:1]), x, index, source)


def test_sums_by_index_come_out_alike_every_time() -> None:
    x, source, index = ts.zeros(9, 40), ts.randn(3000, 40), whole(3000, below=9).long()
    first, second = (x.to("opencl").index_add(0, index.to("opencl"), source.to("opencl")) for _ in range(2))
    assert ts.equal(first, second)
    exact = x.double().index_add(0, index, source.double())
    assert ts.allclose(first.cpu().double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("width", "padding"), [(1, None), (5, 2), (70, 0), (300, None)])
def test_gradients_of_tables(width: int, padding: int | None) -> None:
    index, weights = whole(4, 40, below=11).long(), whole(4, 40, width)

    def gradient(index: ts.Tensor, weights: ts.Tensor) -> ts.Tensor:
        table = ts.zeros(11, width, device=index.device, requires_grad=True)
        (F.embedding(index, table, padding_idx=padding) * weights).sum().backward()
        assert table.grad is not None
        return table.grad

    alike(gradient, index, weights)


@pytest.mark.parametrize("wrong", [-1, 9])
def test_sums_by_a_wrong_index_are_told(wrong: int) -> None:
    x, source = ts.zeros(9, 40, device="opencl"), ts.ones(3, 40, device="opencl")
    index = ts.tensor([1, wrong, 2], device="opencl")
    with pytest.raises(IndexError, match=rf"index {wrong} is out of bounds"):
        x.index_add(0, index, source).cpu()
        ts.opencl.synchronize()
    with pytest.raises(IndexError, match=rf"index {wrong} is out of bounds"):
        x.scatter_add(0, index[:, None].expand(3, 40), source).cpu()
        ts.opencl.synchronize()


@pytest.mark.parametrize("dtype", [*DTYPES, ts.float64, ts.bool], ids=str)
def test_copies_that_exchange_dims(dtype: Any) -> None:
    x = whole(9, 21, 35, dtype=dtype, below=2 if dtype == ts.bool else 8)
    for dims in ((0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        alike(lambda x, dims=dims: x.permute(dims).contiguous(), x)
    alike(lambda x: x[1:, 3:, 2:].permute(2, 0, 1).contiguous(), x)
    alike(lambda x: x[:, :, None].expand(9, 21, 4, 35).permute(0, 3, 2, 1).contiguous(), x)
    alike(lambda x: x.new_zeros(40, 21, 12)[2:37, :, 1:10].copy_(x.permute(2, 1, 0)), x)


def test_long_rows_become_columns() -> None:
    alike(lambda x: x.t().contiguous(), whole(3000, 13))
    alike(lambda x: x.t().contiguous(), whole(13, 3000))
    alike(lambda x: x.contiguous(memory_format=ts.channels_last).contiguous(), whole(2, 17, 40, 30))


@pytest.mark.parametrize("dtype", [ts.complex64, ts.complex128], ids=str)
def test_complex_numbers_are_moved_and_added_without_the_cpu(dtype: Any) -> None:
    x, source = (ts.complex(whole(n, 6), whole(n, 6)).to(dtype) for n in (10, 3))
    index, down, right = ts.tensor([1, 9, 1]), whole(3, 6, below=10).long(), whole(10, 4, below=6).long()
    x_, source_ = x.to("opencl"), source.to("opencl")
    before = ts.backends.fallbacks()
    found = [
        x_.index_select(0, index.to("opencl")),
        x_.t()[:, index.to("opencl")],
        x_.gather(0, down.to("opencl")),
        x_.t().gather(1, down.to("opencl").t()),
        x_.gather(1, right.to("opencl")),
        x_.scatter(1, right[:, :1].to("opencl"), 2 + 3j),
        x_.scatter_add(0, down.to("opencl"), source_),
        x_.index_add(0, index.to("opencl"), source_),
        x_.index_copy(0, index[:2].to("opencl"), source_[:2]),
        x_.index_put((index.to("opencl"),), source_, accumulate=True),
    ]
    assert ts.backends.fallbacks() == before
    expected = [
        x.index_select(0, index),
        x.t()[:, index],
        x.gather(0, down),
        x.t().gather(1, down.t()),
        x.gather(1, right),
        x.scatter(1, right[:, :1], 2 + 3j),
        x.scatter_add(0, down, source),
        x.index_add(0, index, source),
        x.index_copy(0, index[:2], source[:2]),
        x.index_put((index,), source, accumulate=True),
    ]
    assert all(ts.equal(mine.cpu(), theirs) for mine, theirs in zip(found, expected, strict=True))
    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        x_.index_select(0, ts.tensor([10], device="opencl")).cpu()
