"""A first tour: what Tesserack promises, one thing after another, each in a few lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import tesserack as ts
from tesserack import nn


def test_tensors_are_made_and_look_like_what_they_hold(device: ts.device) -> None:
    x = ts.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert x.shape == (2, 2) and x.dtype is ts.float32 and x.device == device
    assert repr(x.cpu()) == "tensor([[1., 2.],\n        [3., 4.]])"
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]] and x.sum().item() == 10
    assert ts.arange(3, device=device).dtype is ts.int64


def test_arithmetic_broadcasts_and_promotes(device: ts.device) -> None:
    rows, column = ts.arange(3, device=device), ts.tensor([[10.0], [20.0]], device=device)
    assert (rows + column).tolist() == [[10, 11, 12], [20, 21, 22]]
    assert (column @ column.mT).tolist() == [[100, 200], [200, 400]]
    assert ts.softmax(column, 0).sum().item() == pytest.approx(1)
    assert column.max(0).indices.tolist() == [1]


def test_views_share_memory(device: ts.device) -> None:
    x = ts.zeros(2, 3, device=device)
    x.t()[1] = 7
    x[0, -1].fill_(5)
    assert x.tolist() == [[0, 7, 5], [0, 7, 0]]
    assert x.t().is_contiguous() is False and x.t().stride() == (1, 3)


def test_gradients(device: ts.device) -> None:
    x = ts.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    y = (x**3).sum()
    (first,) = ts.autograd.grad(y, x, create_graph=True)
    (second,) = ts.autograd.grad(first.sum(), x)
    assert first.tolist() == [3, 12, 27] and second.tolist() == [6, 12, 18]
    with ts.no_grad():
        assert not (x * 2).requires_grad


def test_functions_are_transformed(device: ts.device) -> None:
    x = ts.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert ts.func.vmap(ts.func.grad(lambda row: (row**2).sum()))(x).tolist() == [[2, 4], [6, 8]]


def test_a_small_network_learns(device: ts.device) -> None:
    """Whether a point lies inside of a circle, as in the README."""
    ts.manual_seed(0)
    x = ts.rand(256, 2, device=device) * 2 - 1
    y = (x.pow(2).sum(1) < 0.5).long()
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
    optimizer = ts.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    assert (model(x).argmax(1) == y).float().mean().item() > 0.95


def test_data_comes_in_batches() -> None:
    data = ts.utils.data.TensorDataset(ts.arange(10.0), ts.arange(10))
    batches = list(ts.utils.data.DataLoader(data, batch_size=4))
    assert [len(x) for x, _ in batches] == [4, 4, 2] and batches[-1][1].tolist() == [8, 9]


def test_a_model_is_saved_and_loaded(device: ts.device, tmp_path: Path) -> None:
    model, other = nn.Linear(3, 2).to(device), nn.Linear(3, 2)
    ts.save(model.state_dict(), tmp_path / "model.safetensors")
    other.load_state_dict(ts.load(tmp_path / "model.safetensors"))
    x = ts.ones(1, 3)
    assert ts.allclose(other(x), model(x.to(device)).cpu())


def test_the_same_seed_gives_the_same_numbers(device: ts.device) -> None:
    ts.manual_seed(3)
    here = ts.rand(5, device=device).cpu()
    ts.manual_seed(3)
    assert ts.rand(5).tolist() == here.tolist(), "on every card"


def test_cards_are_listed_and_missing_ones_explained() -> None:
    assert "cpu" in ts.backends.list()
    assert ts.backends.why_unavailable("cpu") is None
    assert "nosuch" in str(ts.backends.why_unavailable("nosuch"))
    with pytest.raises(RuntimeError, match="nosuch"):
        ts.ones(1, device="nosuch")


def test_errors_say_what_was_expected(device: ts.device) -> None:
    with pytest.raises(RuntimeError, match=r"matmul: .*2x3 and 2x3"):
        ts.ones(2, 3, device=device) @ ts.ones(2, 3, device=device)
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        nn.Linear(-1, 2)
    with pytest.raises(RuntimeError, match="a leaf"):
        ts.ones(2, device=device, requires_grad=True).add_(1)


def test_a_fallback_is_counted_and_can_be_forbidden() -> None:
    """What a card cannot compute, the cpu does: warned of once, counted, an error where one asks for it."""
    pytest.importorskip("tesserack_reference", reason="needs a card that lacks kernels, which make test installs")
    x = ts.eye(3, device="reference")
    before = sum(ts.backends.fallbacks().values())
    with pytest.warns(UserWarning, match="cpu"):
        ts.linalg.eigh(x)
    assert sum(ts.backends.fallbacks().values()) > before
    ts.backends.set_fallback("error")
    try:
        with pytest.raises(RuntimeError, match="eigh"):
            ts.linalg.eigh(x)
    finally:
        ts.backends.set_fallback("warn")


def test_a_copy_is_refused_where_one_asks_for_it() -> None:
    pytest.importorskip("tesserack_reference", reason="needs a second card, which make test installs")
    x = ts.ones(2)
    with ts.transfer_guard("error"), pytest.raises(RuntimeError, match=r"copies float32.* from cpu to reference"):
        x.to("reference")
    with pytest.raises(RuntimeError, match="reference"):
        x + ts.ones(2, device="reference")
