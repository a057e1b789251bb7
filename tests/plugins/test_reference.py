"""The reference backend: small, complete in the required set, and equal to the cpu backend in what it computes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import tesserack as ts

PACKAGE = Path(__file__).resolve().parents[2] / "plugins" / "reference" / "tesserack_reference"
pytestmark = pytest.mark.usefixtures("no_fallback")


def test_it_is_small() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in PACKAGE.glob("*.py"))
    assert lines <= 300


@pytest.mark.parametrize(
    "dtype", [ts.float32, ts.float64, ts.bfloat16, ts.float16, ts.int32, ts.uint8, ts.bool], ids=str
)
def test_round_trip_and_casts(reference: ts.device, dtype: ts.dtype) -> None:
    x = ts.tensor([[0.0, 1.0, 2.5], [3.0, 100.0, 7.0]]).to(dtype)
    there = x.to(reference)
    assert ts.equal(there.t().contiguous().cpu(), x.t())
    assert ts.equal(there.to(ts.float32).cpu(), x.to(ts.float32))
    assert ts.equal(there.to(ts.int64).cpu(), x.to(ts.int64))


def test_random_numbers_are_the_cpu_backends(reference: ts.device) -> None:
    for make in (lambda d: ts.rand(1001, device=d), lambda d: ts.randint(0, 1000, (77,), device=d)):
        ts.manual_seed(3)
        here = make("cpu")
        ts.manual_seed(3)
        assert ts.equal(make(reference).cpu(), here)


def test_a_model_learns_without_fallbacks(reference: ts.device) -> None:
    ts.manual_seed(0)
    F = ts.nn.functional
    model = ts.nn.Sequential(
        *(ts.nn.Conv2d(1, 4, 3), ts.nn.BatchNorm2d(4), ts.nn.ReLU(), ts.nn.MaxPool2d(2), ts.nn.Flatten()),
        ts.nn.Linear(36, 2),
    ).to(reference)
    x = ts.randn(32, 1, 8, 8, device=reference)
    y = (x.sum((1, 2, 3)) > 0).long()
    optimizer = ts.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    assert ts.backends.fallbacks() == {}


def test_errors_of_kernels_reach_the_user(reference: ts.device) -> None:
    x = ts.ones(3, device=reference, dtype=ts.int32)
    with pytest.raises(RuntimeError, match="ZeroDivisionError") as caught:
        ts.floor_divide(x, ts.zeros(3, device=reference, dtype=ts.int32))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(IndexError, match="out of bounds"):
        ts.gather(x, 0, ts.tensor([5], device=reference))


def test_complex_numbers_go_by_parts(reference: ts.device) -> None:
    """The device knows no complex dtype: programs, copies, sums and products of matrices run over real parts."""
    z = ts.tensor([[1 + 2j, 3 - 1j], [0j, 1j]])
    x = z.to(reference)
    assert np.array_equal(x.t().contiguous().cpu().numpy(), z.t().numpy())
    for compute in (
        lambda x: x * x.conj() + 2j,
        lambda x: (x + 3).exp().log(),
        lambda x: x @ x.mH,
        lambda x: x.sum(0),
        lambda x: x.prod(1),
        lambda x: x.cumsum(1),
        lambda x: x.abs(),
        lambda x: x.to(ts.complex128),
        lambda x: ts.full_like(x, 1 - 1j),
    ):
        assert np.allclose(compute(x).cpu().numpy(), compute(z).numpy(), atol=1e-6)
    assert ts.backends.fallbacks() == {}


def test_complex_numbers_are_gathered_as_pairs(reference: ts.device) -> None:
    z, index = ts.tensor([[1 + 2j, 3 - 1j], [0j, 1j]]), ts.tensor([[1, 0]])
    assert np.array_equal(z.to(reference).gather(0, index.to(reference)).cpu().numpy(), z.gather(0, index).numpy())
    assert ts.backends.fallbacks() == {}


def test_factorisations_run_on_the_cpu_visibly(reference: ts.device) -> None:
    a = ts.tensor([[4.0, 2.0], [2.0, 3.0]])
    with pytest.raises(NotImplementedError, match="backend 'reference' has no kernel"):
        ts.linalg.cholesky(a.to(reference))
    ts.backends.set_fallback("allow")
    assert np.array_equal(ts.linalg.cholesky(a.to(reference)).cpu().numpy(), ts.linalg.cholesky(a).numpy())
    assert ts.backends.fallbacks() == {"lapack_cholesky": 1}


def test_shared_memory_is_saved_once(reference: ts.device) -> None:
    whole = ts.arange(4.0, device=reference)
    file = io.BytesIO()
    ts.save({"a": whole, "b": whole.detach(), "c": whole[2:], "d": whole.clone()}, file)
    file.seek(0)
    again = ts.load(file)
    assert again["a"] is again["b"] and again["c"].tolist() == [2, 3] and again["a"] is not again["d"]
