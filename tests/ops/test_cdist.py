"""Distances of all pairs of rows against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(8)
BY_PRODUCTS, BY_DIFFERENCES = "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"


def tensor(array: Any, device: Any, grad: bool = False) -> ts.Tensor:
    return ts.tensor(np.asarray(array), device=device, requires_grad=grad)


def distances(a: np.ndarray, b: np.ndarray, p: float) -> np.ndarray:
    return np.linalg.norm(a[..., :, None, :] - b[..., None, :, :], ord=p, axis=-1)


@pytest.mark.parametrize("p", [0, 1, 2, 3, np.inf])
@pytest.mark.parametrize(("first", "second"), [((4, 3), (5, 3)), ((30, 3), (2, 1, 3)), ((700, 6), (130, 6))])
def test_against_numpy(device: Any, first: tuple[int, ...], second: tuple[int, ...], p: float) -> None:
    a, b = RNG.standard_normal(first), RNG.standard_normal(second)
    got = ts.cdist(tensor(a, device), tensor(b, device), p)
    np.testing.assert_allclose(got.cpu().numpy(), distances(a, b, p), rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("mode", [BY_PRODUCTS, BY_DIFFERENCES])
def test_gradients(device: Any, mode: str) -> None:
    a, b = (tensor(RNG.standard_normal(s), device, grad=True) for s in ((2, 3, 2), (1, 4, 2)))
    call = lambda x, y: ts.cdist(x, y, compute_mode=mode)  # noqa: E731
    assert gradcheck(call, (a, b))
    assert gradgradcheck(call, (a, b))


@pytest.mark.parametrize("mode", [BY_PRODUCTS, BY_DIFFERENCES])
def test_rows_that_coincide_have_no_gradient(device: Any, mode: str) -> None:
    a = tensor([[1.0, 2.0], [3.0, 5.0]], device, grad=True)
    d = ts.cdist(a, a, compute_mode=mode)
    assert d.diagonal().tolist() == [0.0, 0.0]
    d.sum().backward()
    assert a.grad is not None
    np.testing.assert_allclose(a.grad.cpu().numpy(), [[-2 * 2 / 13**0.5, -2 * 3 / 13**0.5], [4 / 13**0.5, 6 / 13**0.5]])


def test_differences_of_all_pairs_are_not_kept(device: Any) -> None:
    a = tensor(RNG.standard_normal((600, 300)), device, grad=True)
    for p in (2.0, 1.0):
        ts.reset_peak_memory_stats(device)
        before = ts.memory_allocated(device)
        ts.cdist(a, a, p).sum().backward()
        assert ts.max_memory_allocated(device) - before < 100 * a.nbytes  # all pairs: 600 times


def test_empty_and_wrong_arguments(device: Any) -> None:
    zeros = ts.cdist(ts.ones(2, 0, device=device), ts.ones(3, 0, device=device), float("inf"))
    assert zeros.tolist() == [[0.0] * 3] * 2
    assert ts.cdist(ts.ones(0, 4, device=device), ts.ones(3, 4, device=device)).shape == (0, 3)
    a = ts.ones(2, 3, device=device)
    with pytest.raises(ValueError, match="expected compute_mode to be 'use_mm_for_euclid_dist_if_necessary'"):
        ts.cdist(a, a, compute_mode="fast")
    with pytest.raises(RuntimeError, match="same number of columns"):
        ts.cdist(a, ts.ones(2, 4, device=device))
    with pytest.raises(RuntimeError, match="non-negative p"):
        ts.cdist(a, a, -1.0)
    with pytest.raises(RuntimeError, match="floating-point"):
        ts.cdist(a, a.long())
    for shapes in (((3,), (2, 3)), ((), ()), ((2, 3), (3,))):
        x1, x2 = (ts.ones(s, device=device) for s in shapes)
        for call in (ts.cdist, ts.ops.cdist_by_products, lambda u, v: ts.ops.cdist_by_differences(u, v, 1.0)):
            with pytest.raises(RuntimeError, match="at least 2D"):
                call(x1, x2)
    with pytest.raises(RuntimeError, match=r"^cdist: The size of tensor a"):
        ts.cdist(ts.ones(2, 30, 3, device=device), ts.ones(3, 4, 3, device=device))


ORDERS = [0.5, 1.0, 2.0, 3.0, np.inf]


def both_gradients(call: Any, *tensors: ts.Tensor) -> list[np.ndarray]:
    """Gradients of `call` by each tensor from the kernel, then from operators that can be differentiated again."""
    result = call(*tensors)
    weights = tensor(np.linspace(-1, 2, result.numel()).reshape(result.shape), result.device).to(result.dtype)
    found = [ts.autograd.grad(result, tensors, weights, retain_graph=True, create_graph=c) for c in (False, True)]
    return [g.detach().cpu().numpy() for grads in found for g in grads]


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize(
    ("first", "second"), [((3, 1), (5, 1)), ((70, 5), (2, 1, 5)), ((2, 1, 3), (129, 3)), ((4, 300), (33, 300))]
)
def test_gradients_of_kernels(device: Any, first: tuple[int, ...], second: tuple[int, ...], p: float) -> None:
    a, b = RNG.standard_normal(first), RNG.standard_normal(second)
    b[..., 0, :] = a[..., :1, :].reshape(-1, a.shape[-1])[0]
    x, y = tensor(a, device, grad=True), tensor(b, device, grad=True)
    once_a, once_b, again_a, again_b = both_gradients(lambda u, v: ts.cdist(u, v, p, BY_DIFFERENCES), x, y)
    np.testing.assert_allclose(once_a, again_a, rtol=1e-9, atol=1e-9 * max(1, abs(again_a).max()))
    np.testing.assert_allclose(once_b, again_b, rtol=1e-9, atol=1e-9 * max(1, abs(again_b).max()))


@pytest.mark.parametrize("p", [0.0, *ORDERS])
@pytest.mark.parametrize("shape", [(1, 3), (2, 1), (70, 5), (300, 2), (5, 300)])
def test_pairs(device: Any, shape: tuple[int, int], p: float) -> None:
    a = RNG.standard_normal(shape)
    x = tensor(a, device, grad=True)
    pairs = ts.nn.functional.pdist(x, p)
    upper = np.triu_indices(shape[0], 1)
    np.testing.assert_allclose(pairs.detach().cpu().numpy(), distances(a, a, p)[upper], rtol=1e-9, atol=1e-9)
    if p and shape[0] > 1:
        once, again = both_gradients(lambda u: ts.nn.functional.pdist(u, p), x)
        np.testing.assert_allclose(once, again, rtol=1e-9, atol=1e-9 * max(1, abs(again).max()))


@pytest.mark.parametrize("p", ORDERS)
def test_extreme_values(device: Any, p: float) -> None:
    values = np.array([0, -0.0, 1, np.nan, np.inf, -np.inf, 1e30, 1e-30, 3e38], dtype=np.float32)
    rng = np.random.default_rng(9)
    x, y = (tensor(rng.choice(values, (n, 3)), device, grad=True) for n in (20, 40))
    got = ts.cdist(x, y, p, BY_DIFFERENCES).detach()
    want = ts.linalg.vector_norm(x.detach()[:, None] - y.detach()[None], p, -1)
    np.testing.assert_allclose(got.cpu().numpy(), want.cpu().numpy(), rtol=1e-5)
    once_x, once_y, again_x, again_y = both_gradients(lambda u, v: ts.cdist(u, v, p, BY_DIFFERENCES), x, y)
    np.testing.assert_allclose(once_x, again_x, rtol=1e-4)
    np.testing.assert_allclose(once_y, again_y, rtol=1e-4)
