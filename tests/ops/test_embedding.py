"""Embedding tables against NumPy indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.aten.operators import namespace
from tesserack.autograd import gradcheck, gradgradcheck
from tesserack.nn import functional as F

RNG = np.random.default_rng(8)
TABLE = RNG.standard_normal((5, 3))


def tensor(array: Any, device: Any, dtype: Any = None, grad: bool = False) -> ts.Tensor:
    return ts.tensor(np.asarray(array), dtype=dtype, device=device, requires_grad=grad)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0, 2)])
@pytest.mark.parametrize("index", ["int64", "int32"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_rows(device: Any, shape: tuple[int, ...], index: str, dtype: str) -> None:
    at = RNG.integers(0, 5, shape).astype(index)
    table = tensor(TABLE, device, getattr(ts, dtype))
    got = F.embedding(tensor(at, device, getattr(ts, index)), table)
    assert got.dtype == table.dtype
    np.testing.assert_array_equal(got.double().cpu().numpy(), table.double().cpu().numpy()[at])


@pytest.mark.parametrize("padding", [None, 1, -1])
def test_gradients(device: Any, padding: int | None) -> None:
    at = np.array([[0, 1, 1], [4, 4, 1]])
    weight, indices = tensor(TABLE, device, grad=True), tensor(at, device)
    F.embedding(indices, weight, padding).sum().backward()
    counts = np.bincount(at.reshape(-1), minlength=5).astype(float)
    if padding is not None:
        counts[padding] = 0
    np.testing.assert_array_equal(weight.grad.cpu().numpy(), np.repeat(counts[:, None], 3, 1))
    if padding is None:
        assert gradcheck(lambda w: F.embedding(indices, w), (weight,))
    # The gradient is linear in what arrives: its own derivative is a lookup.
    arriving = tensor(RNG.standard_normal((2, 3, 3)), device, grad=True)
    (grad,) = ts.autograd.grad(F.embedding(indices, weight, padding), weight, arriving, create_graph=True)
    (back,) = ts.autograd.grad(grad, arriving, ts.ones_like(grad))
    expected = np.ones((2, 3, 3))
    if padding is not None:
        expected[at == padding % 5] = 0
    np.testing.assert_array_equal(back.cpu().numpy(), expected)
    if padding is None:
        assert gradgradcheck(lambda w: F.embedding(indices, w.sin()), (weight,))


def test_strided_table_and_indices(device: Any) -> None:
    table, at = tensor(TABLE.T.copy(), device).t(), tensor([[0, 1], [2, 3]], device).t()
    np.testing.assert_array_equal(F.embedding(at, table).cpu().numpy(), TABLE[[[0, 2], [1, 3]]])


def test_errors(device: Any) -> None:
    table = tensor(TABLE, device)
    for indices in ([5], [-1], [0, 1, 99]):
        with pytest.raises(IndexError, match="embedding"):
            F.embedding(tensor(indices, device), table)
    with pytest.raises(IndexError):
        F.embedding(tensor([0], device), ts.empty(0, 3, device=device))
    for call, error, text in (
        (lambda: F.embedding(tensor([0.5], device), table), RuntimeError, "Long, Int"),
        (lambda: F.embedding(tensor([0], device), table[0]), RuntimeError, "2-D"),
        (lambda: ts.embedding(tensor([0], device), table, 7), RuntimeError, "Padding_idx"),
    ):
        with pytest.raises(error, match=text):
            call()


def test_bags_end_at_the_last_offset(device: str) -> None:
    """What lies beyond it is in no bag, and it lies within the indices."""
    table = ts.arange(8.0, device=device).reshape(4, 2).requires_grad_()
    indices, offsets = ts.tensor([0, 1, 2, 3, 3], device=device), ts.tensor([0, 2, 3], device=device)
    weights = ts.tensor([1.0, 2.0, 3.0, 4.0, 5.0], device=device, requires_grad=True)
    got = F.embedding_bag(indices, table, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True)
    assert got.tolist() == [[4.0, 7.0], [12.0, 15.0]]
    got.sum().backward()
    assert table.grad is not None and table.grad.tolist() == [[1, 1], [2, 2], [3, 3], [0, 0]]
    assert weights.grad is not None and weights.grad.tolist() == [1.0, 5.0, 9.0, 0.0, 0.0]
    for mode in ("sum", "mean", "max"):
        for beyond in (6, 10**6, -1):
            with pytest.raises(RuntimeError, match=r"offsets\[-1\]"):
                F.embedding_bag(
                    indices, table, ts.tensor([0, beyond], device=device), mode=mode, include_last_offset=True
                )
        whole = F.embedding_bag(
            indices, table, ts.tensor([0, 2, 5], device=device), mode=mode, include_last_offset=True
        )
        plain = F.embedding_bag(indices, table, ts.tensor([0, 2], device=device), mode=mode)
        assert whole.tolist() == plain.tolist()


def test_atens_embedding_takes_what_aten_does():
    """By their names, too; names that there are not are refused."""
    aten, indices = namespace("aten"), ts.tensor([1, 1, 2])
    weight = ts.randn(4, 3, requires_grad=True)
    aten.embedding(weight, indices, scale_grad_by_freq=True).sum().backward()
    assert weight.grad[:, 0].tolist() == [0, 1, 1, 0]
    weight.grad = None
    aten.embedding(weight, indices, -1, False, True).sum().backward()
    assert weight.grad.is_sparse and weight.grad.to_dense()[:, 0].tolist() == [0, 2, 1, 0]
    with pytest.raises(TypeError, match="wieght"):
        aten.layer_norm(ts.ones(2, 3), [3], wieght=ts.ones(3))
