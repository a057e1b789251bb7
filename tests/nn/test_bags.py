"""embedding_bag without the rows of its bags in memory: values, gradients of two orders, long bags, ties, NaN."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack.autograd import gradcheck, gradgradcheck
from tesserack.ops.registry import operators

OFFSETS = [0, 3, 3, 40, 41]  # one bag is empty
REDUCED = {"sum": np.sum, "mean": np.mean, "max": np.max}


@pytest.mark.parametrize("mode", sorted(REDUCED))
@pytest.mark.parametrize("width", [1, 7, 64, 75])
def test_bags(mode: str, width: int, device: ts.device) -> None:
    rng = np.random.default_rng(width)
    table, at = rng.normal(size=(30, width)).astype(np.float32), rng.integers(0, 30, 50)
    found = F.embedding_bag(
        ts.tensor(at, device=device), ts.tensor(table, device=device), ts.tensor(OFFSETS, device=device), mode=mode
    )
    ends = [*OFFSETS[1:], 50]
    rows = [table[at[a:b]] for a, b in zip(OFFSETS, ends, strict=True)]
    wanted = [REDUCED[mode](r, axis=0) if len(r) else np.zeros(width, np.float32) for r in rows]
    np.testing.assert_allclose(found.cpu().numpy(), np.stack(wanted), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", sorted(REDUCED))
def test_gradients(mode: str, device: ts.device) -> None:
    values = np.random.default_rng(0).permutation(18).reshape(6, 3) * 0.25
    weight = ts.tensor(values, device=device, requires_grad=True)
    at, offsets = ts.tensor([0, 1, 1, 5, 2, 3], device=device), ts.tensor([0, 2, 2], device=device)
    assert gradcheck(lambda w: F.embedding_bag(at, w, offsets, mode=mode), (weight,))
    assert gradgradcheck(lambda w: F.embedding_bag(at, w, offsets, mode=mode), (weight,))
    if mode != "sum":
        return
    scale = ts.rand(6, dtype=ts.float64, device=device, requires_grad=True)

    def scaled(w: ts.Tensor, s: ts.Tensor) -> ts.Tensor:
        return F.embedding_bag(at, w, offsets, mode="sum", per_sample_weights=s)

    assert gradcheck(scaled, (weight, scale)) and gradgradcheck(scaled, (weight, scale))


def test_the_first_of_equal_maxima_has_the_gradient(device: ts.device) -> None:
    weight = ts.tensor([[1.0, 5.0], [2.0, 5.0], [2.0, 0.0]], device=device, requires_grad=True)
    F.embedding_bag(
        ts.tensor([2, 1, 0], device=device), weight, ts.tensor([0, 3], device=device), mode="max"
    ).sum().backward()
    assert weight.grad is not None
    assert weight.grad.cpu().tolist() == [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


def test_nan_is_the_maximum(device: ts.device) -> None:
    weight = ts.tensor([[1.0], [math.nan], [3.0]], device=device)
    found = F.embedding_bag(ts.tensor([0, 1, 2], device=device), weight, ts.tensor([0], device=device), mode="max")
    assert math.isnan(found.cpu().item())


@pytest.mark.skipif(not os.environ.get("FULL"), reason="FULL=1: some seconds")
def test_long_bags_count_on() -> None:
    """float32 alone would stop at 2^24."""
    n = 2**24 + 8
    found = F.embedding_bag(ts.zeros(n, dtype=ts.int64), ts.ones(1, 1), ts.tensor([0]), mode="sum")
    assert found.item() == n


def test_indices_outside(device: ts.device) -> None:
    if device.type != "cpu":
        pytest.skip("indices of other devices are not read by the host")
    for mode in REDUCED:
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            F.embedding_bag(ts.tensor([0, 9], device=device), ts.ones(3, 2, device=device),
                            ts.tensor([0], device=device), mode=mode)  # fmt: skip


def test_weights_of_samples_have_the_dtype_of_the_table(device: ts.device) -> None:
    at, table = ts.tensor([[0, 1]], device=device), ts.ones(3, 2, device=device)
    with pytest.raises(RuntimeError, match="have the same type as"):
        F.embedding_bag(at, table, mode="sum", per_sample_weights=ts.ones(1, 2, device=device).double())


def test_bags_of_no_width(device: ts.device) -> None:
    table = ts.ones(3, 2, device=device)
    for mode in REDUCED:
        found = F.embedding_bag(ts.zeros(4, 0, dtype=ts.int64, device=device), table, mode=mode)
        assert found.cpu().tolist() == [[0.0, 0.0]] * 4


def test_an_offset_in_the_middle_may_not_lie_outside(device: ts.device) -> None:
    for offsets in ([0, 7, 1], [0, -2, 1]):
        with pytest.raises(RuntimeError, match="offsets that do not decrease"):
            F.embedding_bag(ts.tensor([0, 1], device=device), ts.ones(3, 2, device=device),
                            ts.tensor(offsets, device=device), mode="sum")  # fmt: skip


def test_a_gradient_has_a_row_for_each_bag(device: ts.device) -> None:
    backward = operators()["_bag_sums_backward"]
    at, starts = ts.tensor([0, 1, 1], device=device), ts.tensor([0, 1, 2], device=device)
    with pytest.raises(RuntimeError, match="a row for each of 3 bags"):
        backward(ts.ones(1, 2, device=device), at, starts, None, 4)
    with pytest.raises(RuntimeError, match="expected a table"):
        backward(ts.ones(3, 2, device=device), at, starts, ts.ones(1, device=device), 4)
    assert backward(ts.ones(3, 2, device=device), at, starts, None, 4).cpu().tolist()[1] == [2.0, 2.0]


@pytest.mark.parametrize("mode", sorted(REDUCED))
@pytest.mark.parametrize("last", [False, True])
def test_offsets_that_decrease_are_refused(mode: str, last: bool, device: ts.device) -> None:
    table, at = ts.ones(5, 1, device=device), ts.arange(4, device=device)
    with pytest.raises(RuntimeError, match="offsets that do not decrease"):
        F.embedding_bag(at, table, ts.tensor([0, 3, 2, 4], device=device), mode=mode, include_last_offset=last)
